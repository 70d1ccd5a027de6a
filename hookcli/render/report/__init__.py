"""The page of a run, the page of a comparison, and the HTML of a result in a notebook."""
