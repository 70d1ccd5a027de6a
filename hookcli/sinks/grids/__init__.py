"""Feature maps and heat maps as labelled PNG files. The only room that draws."""

from hookcli.sinks.canvas import load_palette
from hookcli.sinks.grids.heat import draw_heat, draw_saliency
from hookcli.sinks.grids.writer import GridWriter, grid_name, render_grid

__all__ = ["GridWriter", "draw_heat", "draw_saliency", "grid_name", "load_palette", "render_grid"]
