"""What models are for, one file each: what they take, what their layers see, what they return."""
