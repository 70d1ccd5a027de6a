"""Compare two runs, or two ways of running a model, and find the layer that differs first."""
