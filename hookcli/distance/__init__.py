"""Measure the distance between two tensors, and compare the distance with a tolerance."""
