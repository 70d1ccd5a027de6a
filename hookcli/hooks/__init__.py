"""Choosing modules and putting hooks on them; the only folder that registers a hook."""
