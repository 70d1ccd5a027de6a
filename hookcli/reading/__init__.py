"""Read run folders: load finished runs, and make their pages again.

Nothing here writes into a run folder.
"""
