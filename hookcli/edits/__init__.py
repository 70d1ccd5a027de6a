"""Parse ``--edit`` and ``--prune``, and change the model as they demand."""
