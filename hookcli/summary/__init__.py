"""Sum up the records of a run: tallies, top images and findings."""
