"""Plain values turned into pictures, charts, pages, and what a notebook shows."""
