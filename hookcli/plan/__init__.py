"""What a run needs, checked and costed before anything is written."""
