"""Sum up the records of a run in tallies, top images and findings."""
