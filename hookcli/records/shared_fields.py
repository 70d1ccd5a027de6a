"""Describe fields that several JSON documents share, such as ``command``, for the JSON Schema."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from hookcli.outside.documents import at_least, keywords
from hookcli.records.calls import UncalledLayer
from hookcli.records.images import ImageResult, SkippedImage
from hookcli.records.runs import Finding, ModelInfo

COMMAND_OR_NULL = keywords(
    description="The words that repeat the run, without options that do not change the result, "
    "such as the run folder; null for things that a Python program held in memory."
)
_Words: TypeAlias = Annotated[
    tuple[str, ...], at_least(3), keywords(prefixItems=[{"const": "hookcli"}])
]
Command: TypeAlias = Annotated[_Words | None, COMMAND_OR_NULL]
Options: TypeAlias = Annotated[
    tuple[str, ...],
    keywords(description="Without a command, the verb and its options as words of a command."),
]
SkippedImages: TypeAlias = Annotated[
    tuple[SkippedImage, ...], keywords(description="The images that could not be used.")
]
ImageResults: TypeAlias = Annotated[
    tuple[ImageResult, ...],
    keywords(description="The images in the order of the run, with predictions."),
]
UncalledLayers: TypeAlias = Annotated[
    tuple[UncalledLayer, ...], keywords(description="The selected layers that did not run.")
]
RunModel: TypeAlias = Annotated[
    ModelInfo, keywords(description="The model that ran, and its weights.")
]
Findings: TypeAlias = Annotated[
    tuple[Finding, ...], keywords(description="The findings, the gravest first.")
]
