"""Pictures of feature maps, heat maps and compared maps."""
