"""Run on a Ray cluster: workers share the chunks of images that one machine runs in order."""
