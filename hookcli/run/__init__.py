"""A run over images: run chunk by chunk, written to its folder, and closed."""
