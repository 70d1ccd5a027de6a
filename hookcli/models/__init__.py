"""Models by name: built, with their weights and their preprocessing, and ready to run."""
