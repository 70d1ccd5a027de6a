"""How far two tensors are apart, and whether that is tolerated."""
