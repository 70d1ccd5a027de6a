"""Images through a model: forward pass, backward pass, survey, and the origin of a NaN."""
