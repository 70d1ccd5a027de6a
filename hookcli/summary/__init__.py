"""Records summed up: tallies, top images, findings."""
