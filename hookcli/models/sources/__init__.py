"""Where models come from, one file each: their names, modules, weights and preprocessing."""
