"""Answer questions about finished runs, from their saved tensors, without torch."""
