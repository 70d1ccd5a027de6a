"""The light facts of a run: strings and numbers, never a tensor."""
