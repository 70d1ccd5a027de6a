"""Draw feature maps, heat maps, attention, compared activations, thumbnails and charts."""
