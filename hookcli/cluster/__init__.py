"""A run on a Ray cluster: many workers run the same chunks as one machine would."""
