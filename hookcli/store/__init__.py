"""The run folder: every file of it, written and read."""
