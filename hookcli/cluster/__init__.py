"""A run on a Ray cluster: the same chunks as on one machine, run by many workers."""
