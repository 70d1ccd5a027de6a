"""The distance between two tensors, and the comparison of the distance with a tolerance."""
