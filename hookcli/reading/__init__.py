"""A finished run, read: its tables, pictures and tensors; nothing is written."""
