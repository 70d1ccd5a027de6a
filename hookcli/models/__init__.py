"""Models by name: torchvision's, timm's and the user's own, built and loaded with weights, ready to run.

The only room that knows torchvision and timm. Nothing here runs a model, and nothing is unpickled:
every file is read with ``weights_only=True`` or as safetensors.
"""

from hookcli.models.catalog import CatalogEntry, list_catalog, list_names
from hookcli.models.loading import LoadedModel, build_skeleton, load_model
from hookcli.models.predictions import read_predictions
from hookcli.models.scoring import Scored, score_output

__all__ = [
    "CatalogEntry",
    "LoadedModel",
    "Scored",
    "build_skeleton",
    "list_catalog",
    "list_names",
    "load_model",
    "read_predictions",
    "score_output",
]
