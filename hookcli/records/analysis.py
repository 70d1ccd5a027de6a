"""Declare what the commands that analyse finished runs share: JSON fields, and ways to pool.

These commands are ``hookcli places``, ``map``, ``probe`` and ``similarity``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from hookcli.outside.documents import Document, keywords
from hookcli.records.images import ImageResult
from hookcli.records.pictures import Thumbnails
from hookcli.records.runs import ModelInfo
from hookcli.records.shared_fields import Command

Pool: TypeAlias = Literal["mean", "max", "class"]
"""One feature vector per image: the mean or max over its tokens or pixels, or its class token."""

WholePool: TypeAlias = Literal["none", "mean", "max"]
"""One feature vector per image, as in ``Pool``; ``none`` flattens all tokens or pixels."""

Cosine: TypeAlias = Annotated[float, keywords(minimum=-1, maximum=1)]


@dataclass(frozen=True, slots=True)
class AnalysedRun:
    """A finished run that an analysis read.

    Attributes:
        folder: the run folder as the user named it; empty for a run that was not kept on disk.
        model: the model that ran, and its weights.
        images: the number of images in the run.
    """

    folder: str
    model: ModelInfo
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisDocument(Document):
    """The fields that the JSON output of every analysis of finished runs has.

    Attributes:
        folder: the folder of the analysis, given with ``-o`` or by default; empty if nothing was
            written.
        runs: the runs that were analysed.
    """

    command: Command
    folder: str
    runs: tuple[AnalysedRun, ...]


@dataclass(frozen=True, slots=True)
class ImagePictures:
    """The fields of ``report.json`` that list the images and their thumbnails."""

    images: tuple[ImageResult, ...]  # ``seen`` is the file of the network's input
    thumbnails: tuple[Thumbnails, ...] = ()
