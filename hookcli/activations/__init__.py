"""Compute statistics, sketches, pictures and attention from a tensor while its hook runs."""
