"""Plain values turned into pictures, charts and pages."""
