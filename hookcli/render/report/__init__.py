"""The page of a run, and the page of a comparison."""
