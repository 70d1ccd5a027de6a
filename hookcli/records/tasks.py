"""The tasks of torchvision's models, by the words that manifests and ``hookcli models`` use."""

from __future__ import annotations

from enum import StrEnum, auto


class TaskWord(StrEnum):
    """The word for a task, which torchvision's packages have, too."""

    CLASSIFICATION = auto()
    DETECTION = auto()
    SEGMENTATION = auto()
    VIDEO = auto()
    OPTICAL_FLOW = auto()
    QUANTIZATION = auto()


MAY_FIND_NOTHING = frozenset({TaskWord.DETECTION})
"""The tasks for which an image without predictions was read, and the model found nothing in it."""
