"""Drawing of feature maps, heat maps, attention, compared activations and thumbnails."""
