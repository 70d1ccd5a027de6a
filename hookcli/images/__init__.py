"""Find, read and prepare images: turn the names that the user gives into pixels."""
