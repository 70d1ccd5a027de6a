"""What the results of all analyses of finished runs have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from hookcli.outside.documents import Document, keywords
from hookcli.records.images import ImageResult
from hookcli.records.pictures import Thumbnails
from hookcli.records.runs import ModelInfo
from hookcli.records.shared_fields import Command

Pool: TypeAlias = Literal["mean", "max", "class"]
"""How the features of an image are made from those of its places: see ``SavedCall``."""

WholePool: TypeAlias = Literal["none", "mean", "max"]
"""The same; ``none`` means that the features of all places are used, side by side."""

Cosine: TypeAlias = Annotated[float, keywords(minimum=-1, maximum=1)]


@dataclass(frozen=True, slots=True)
class AnalysedRun:
    """A run that was analysed.

    Attributes:
        folder: the run folder as the user named it; empty for a run that was not kept.
        model: the model that ran, and its weights.
        images: the number of images of the run.
    """

    folder: str
    model: ModelInfo
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisDocument(Document):
    """The result of a command that reads finished runs.

    Attributes:
        folder: the folder of the analysis, as given with ``-o`` or as hookcli chose it.
        runs: the runs that were analysed.
    """

    command: Command
    folder: str
    runs: tuple[AnalysedRun, ...]


@dataclass(frozen=True, slots=True)
class ImagePictures:
    """The part of ``report.json`` that describes images and their thumbnails."""

    images: tuple[ImageResult, ...]  # ``seen`` is the file of the network's input
    thumbnails: tuple[Thumbnails, ...] = ()
