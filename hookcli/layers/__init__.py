"""The modules of a model as facts, and the filter language that chooses among them.

Nothing here runs the model.
"""

from hookcli.layers.filters import ALIASES, read_forms, select_layers
from hookcli.layers.listing import FAMILIES, explain_uncalled, list_layers

__all__ = [
    "ALIASES",
    "FAMILIES",
    "explain_uncalled",
    "list_layers",
    "read_forms",
    "select_layers",
]
