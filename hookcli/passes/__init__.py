"""Run images through a model: forward and backward passes, surveys, and searches for a NaN."""
