"""Charts of statistics and gradients over depth, and the overview picture of a run."""
