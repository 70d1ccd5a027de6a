"""What has to be known of a task; each of the other tasks changes what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hookcli.models.tasks.presets import change_preset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image
    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.models.tasks.outputs import Predictions, Scored
    from hookcli.models.tasks.presets import Chosen, MakePreset, Transform

    Pictures: TypeAlias = Sequence[Image.Image]  # one, or the frames of a clip, or those of a pair


class Task:
    """A task of models that take one picture of a fixed size.

    Attributes:
        word: what manifests and ``hookcli models`` call it.
        nominal: the height and width of a usual image, where the transform does not crop.
        frames: how many pictures make one input.
        takes_pair: an input is made of two pictures.
        takes_any_size: the model was made for pictures of no particular size.
        shares_forward: several images may go through the model together: the leading axis of its
            tensors counts them.
        keeps_pictures: pixels are made of pictures only when they are needed, since they take more
            memory than the pictures.
        needs_values: the shapes inside the model depend on the values of its weights.
        is_faster_channels_last: its networks of 2-D convolutions are faster in that memory format.
    """

    word: str
    nominal: tuple[int, int] = (224, 224)
    frames: int = 1
    takes_pair: bool = False
    takes_any_size: bool = False
    shares_forward: bool = True
    keeps_pictures: bool = False
    needs_values: bool = False
    is_faster_channels_last: bool = False

    # What a model is given

    def transform(self, request: ModelRequest, module: nn.Module, preset: MakePreset) -> Chosen:
        """Return the transform of a model, with the changes that ``request`` asks for.

        A ViT specifies its size. A detection model resizes by itself, and is changed.

        Raises:
            RequestError: a change was asked for that does not apply to this task.
        """
        return change_preset(request, module, preset)

    def shape(self, channels: int, height: int, width: int) -> tuple[int, ...]:
        """Return the shape (1, …) of the pixels of one input."""
        return (1, channels, height, width)

    def to_pixels(self, pictures: Pictures, transform: Transform, size: int | None) -> Tensor:
        """Return the pixels of one input, without a leading axis.

        ``size`` is the side that was asked for, if the network accepts pictures of any size.
        """
        pixels: Tensor = transform(pictures[0])
        return pixels

    def repeat(self, pixels: Tensor) -> Tensor:
        """Return one input made by repeating the pixels (C, H, W) of a tensor file."""
        return pixels

    def describe(self, pictures: Pictures, count: int, size: int | None) -> str:
        """Return what an image of ``count`` pictures is turned into before the transform.

        It is empty if that is nothing. ``pictures`` may be some of them, or none.
        """
        return ""

    def arguments(self, pixels: Tensor) -> tuple[object, ...]:
        """Return the arguments of the model's forward, for pixels (N, …)."""
        return (pixels,)

    def check_mode(self, name: str, module: nn.Module) -> None:
        """Raise a RequestError if the model cannot run in the mode that it is in."""

    # What its layers see

    def seen(self, module: nn.Module, pixels: Tensor) -> Tensor:
        """Return what the layers are given, (N, …, H, W), for pixels (N, …)."""
        return pixels

    def picture(self, seen: Tensor) -> Tensor:
        """Return a picture (C, H, W) of what the layers are given of one image."""
        return seen

    def normalisation(
        self, module: nn.Module, transform: object
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Return the mean that is subtracted from each colour, and its divisor."""
        for step in [transform, *getattr(transform, "transforms", ())]:
            if hasattr(step, "mean") and hasattr(step, "std"):
                return [float(v) for v in step.mean], [float(v) for v in step.std]
        return [0.0] * 3, [1.0] * 3

    # What it returns

    def read(self, output: object, categories: Sequence[str]) -> Predictions | None:
        """Return the predictions for each image of a batch; None if the output has another form."""
        raise NotImplementedError

    def score(self, output: object, kind: str, target: int | None) -> Scored | None:
        """Return a score of one image; None if the output has another form.

        Args:
            output: what the model returned for one image.
            kind: ``logit``, ``probability`` or ``cross-entropy``.
            target: the class index; None for the predicted class.

        Raises:
            RequestError: the output has no score of this kind, or the target does not exist.
            NoBoxError: a detection model found no box, or none of the target's class.
        """
        raise NotImplementedError
