"""The run folder: every file of it written, and a run that was begun taken up again."""
