"""Edits and pruning: reading ``--edit`` and ``--prune``, and changing the model accordingly."""
