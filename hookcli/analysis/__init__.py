"""Answer questions of finished runs, from their saved tensors, without torch."""
