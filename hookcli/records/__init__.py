"""Records of a run's results, as strings and numbers; no record holds a tensor."""
