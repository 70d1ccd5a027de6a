"""Handling of text, files, names and code from outside hookcli, and output for other programs."""
