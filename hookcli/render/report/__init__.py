"""Render the pages of runs, comparisons and analyses, and the HTML of a result in a notebook."""
