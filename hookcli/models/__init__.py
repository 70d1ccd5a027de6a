"""Models by name: built, given their weights and their preprocessing, and ready to run."""
