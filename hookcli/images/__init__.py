"""Image and tensor files as upright RGB pictures or pixels, or the reason why a file is none.

No torch, so that a wrong path is reported before anything heavy is imported.
"""

from hookcli.images.decoding import UndecodableError, to_upright_rgb
from hookcli.images.finding import find_files
from hookcli.images.reading import ImageFile, ImageSource, list_images, read_images, with_frames

__all__ = [
    "ImageFile",
    "ImageSource",
    "UndecodableError",
    "find_files",
    "list_images",
    "read_images",
    "to_upright_rgb",
    "with_frames",
]
