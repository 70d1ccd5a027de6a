"""Run images through a model in chunks (groups of images), and write the run folder."""
