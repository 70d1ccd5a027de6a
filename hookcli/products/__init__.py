"""The products of a run, one module each: its cost, what it collects, and its files."""
