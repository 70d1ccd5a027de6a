"""Dataclasses that hold a run's results as strings and numbers, never as tensors."""
