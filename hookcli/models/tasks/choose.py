"""The tasks, and the only place in which one of them is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.models.tasks.classification import Classification, Quantized
from hookcli.models.tasks.detection import Detection
from hookcli.models.tasks.optical_flow import OpticalFlow
from hookcli.models.tasks.segmentation import Segmentation
from hookcli.models.tasks.video import Video

if TYPE_CHECKING:
    from hookcli.models.tasks.task import Task

CLASSIFICATION = Classification()
# An output is read by the first task whose form it has.
TASKS: tuple[Task, ...] = (
    CLASSIFICATION,
    Segmentation(),
    Detection(),
    OpticalFlow(),
    Video(),
    Quantized(),
)


def find_task(package: str) -> Task:
    """Return the task of the models in a package of torchvision's, such as ``….detection.ssd``."""
    return next((task for task in TASKS if f".{task.word}." in package), CLASSIFICATION)
