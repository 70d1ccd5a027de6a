"""What is written: each room turns plain values into one kind of file or text."""
