"""Choose modules and register all hooks on them, except the hooks of torch's pruning."""
