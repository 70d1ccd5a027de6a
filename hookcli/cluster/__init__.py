"""Share the images of a run among the workers of a Ray cluster."""
