"""Figures over depth and distances as charts, in PNG and SVG."""
