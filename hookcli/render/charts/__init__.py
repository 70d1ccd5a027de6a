"""Charts of figures over depth and of distances, as PNG and SVG."""
