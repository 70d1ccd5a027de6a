"""Text, files, names and code that come from outside of hookcli, and what is put out to it."""
