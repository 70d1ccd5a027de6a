"""Read run folders: load finished runs, and render their pages again; write nothing to them."""
