"""The modules of a model as facts, and the filter language that chooses among them.

Nothing here runs the model.
"""

from hookcli.layers.filters import select_layers
from hookcli.layers.listing import FAMILIES, explain_uncalled, list_layers, list_watchable

__all__ = [
    "FAMILIES",
    "explain_uncalled",
    "list_layers",
    "list_watchable",
    "select_layers",
]
