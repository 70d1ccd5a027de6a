"""Read run folders: load finished runs, and make their pages again, without writing there."""
