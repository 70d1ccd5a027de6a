"""A run folder read: a finished run as a value, and its page made again; nothing is written."""
