"""From the names that the user gave to pixels."""
