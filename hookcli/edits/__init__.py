"""What ``--edit`` and ``--prune`` ask for, and how it is done."""
