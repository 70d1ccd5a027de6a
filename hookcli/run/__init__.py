"""Run images through a model chunk by chunk, write the run folder, and close it."""
