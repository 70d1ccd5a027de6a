"""Records that the results of all analyses of finished runs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from hookcli.outside.documents import Document, keywords
from hookcli.records.images import ImageResult
from hookcli.records.pictures import Thumbnails
from hookcli.records.runs import ModelInfo
from hookcli.records.shared_fields import Command

Pool: TypeAlias = Literal["mean", "max", "class"]
"""How an image's features are pooled over its tokens or pixels: see ``SavedCall.pool_features``."""

WholePool: TypeAlias = Literal["none", "mean", "max"]
"""Like ``Pool``, but ``none`` keeps the values of all tokens or pixels, flattened."""

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
