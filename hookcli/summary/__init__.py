"""Sum up the records of a run: statistics over all images, top images, and findings."""
