"""A run over images: chunk by chunk, written, and closed."""
