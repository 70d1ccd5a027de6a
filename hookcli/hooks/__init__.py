"""Choosing modules and registering hooks on them; no other folder registers hooks."""
