"""The way from the user's names of images to pixels."""
