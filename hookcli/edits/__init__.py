"""What ``--edit`` asks for, and how it changes a tensor.

Importing this imports no torch, so that an edit that cannot be read is reported at once.
"""

from hookcli.edits.grammar import Edit, Side, Verb, read_edit
from hookcli.edits.operations import apply_edit, check_channels
from hookcli.edits.pruning import Prune, read_prune

__all__ = [
    "Edit",
    "Prune",
    "Side",
    "Verb",
    "apply_edit",
    "check_channels",
    "read_edit",
    "read_prune",
]
