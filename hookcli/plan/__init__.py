"""Check what a run needs, and estimate its cost, before anything is written."""
