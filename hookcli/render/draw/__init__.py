"""Feature maps, heat maps and contrasts as pictures."""
