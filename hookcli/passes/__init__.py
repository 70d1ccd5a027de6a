"""Images through a model: forward, backward, survey, and who made a NaN."""
