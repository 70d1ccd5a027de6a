"""What --edit and --prune ask for, and doing it."""
