"""The distance between two tensors, and whether it is tolerated."""
