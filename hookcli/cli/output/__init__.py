"""Print the results of the commands."""
