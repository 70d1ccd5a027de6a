"""Feature maps as labelled PNG files. The only room that draws."""

from hookcli.sinks.grids.canvas import load_palette
from hookcli.sinks.grids.writer import GridWriter, render_grid

__all__ = ["GridWriter", "load_palette", "render_grid"]
