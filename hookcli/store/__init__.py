"""Write the files of a run folder, and continue a run that was interrupted."""
