"""Run on a Ray cluster: many workers run the chunks that one machine would run in order."""
