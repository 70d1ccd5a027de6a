"""Text, files, names and code from outside of hookcli, and output to other programs."""
