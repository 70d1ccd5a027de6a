"""Run on a Ray cluster, whose workers share the chunks of images of a run."""
