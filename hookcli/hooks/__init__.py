"""Choose modules and register hooks on them; only torch's pruning registers others."""
