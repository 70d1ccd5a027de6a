"""Choose modules and register hooks on them, which code in other folders never does."""
