"""Build models by name, with their weights and their preprocessing."""
