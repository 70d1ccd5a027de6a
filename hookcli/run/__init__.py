"""Run images through a model, chunk by chunk, and write the run folder."""
