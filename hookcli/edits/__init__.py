"""Parse ``--edit`` and ``--prune``, and apply both to the model."""
