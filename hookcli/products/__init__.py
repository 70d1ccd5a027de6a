"""The products of a run, one module for each: its cost, the data it collects, and its files."""
