"""Feature maps, heat maps and compared maps as pictures."""
