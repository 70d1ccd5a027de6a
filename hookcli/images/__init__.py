"""Finding, reading and preparing images: from the names that the user gives to pixels."""
