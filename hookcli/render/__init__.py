"""Turn plain values into pictures, charts and pages, and into HTML for notebooks."""
