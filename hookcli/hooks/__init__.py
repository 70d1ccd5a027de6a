"""Choosing modules and putting hooks on them; the only room that registers a hook."""
