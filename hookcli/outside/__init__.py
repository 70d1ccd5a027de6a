"""Handle text, files, names and code from outside hookcli, and write for other programs."""
