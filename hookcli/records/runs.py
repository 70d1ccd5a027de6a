"""The result of a run over images: the model, the images, and everything that was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli import errors

if TYPE_CHECKING:
    from hookcli.records.attention import AttentionRow
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import ImageResult, SkippedImage
    from hookcli.records.pictures import Grid
    from hookcli.records.rows import LayerRow


MOST_IMAGES = 200  # images whose pictures a page shows
MOST_CHANNELS = 3  # channels per layer that are shown with the images that fire them most
MOST_FIRING = 100  # images that a page of more than 200 shows because they fire some channel


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that ran, its weights, and its settings.

    Attributes:
        name: the name under which the user requested it.
        task: ``classification``, …
        weights: the source of the weights: an enum member, a file, or ``random (seed 0)``.
        trained: False when any figure depends on random numbers.
        warning: what users must know about the weights, such as that they are random; empty for
            trained weights.
        sha256: the hash of the weights file or, for the user's own models without one, of the
            values of the state dict; empty for random weights of other models, and when it cannot
            be computed.
        device: torch's name of the device.
        dtype: the dtype of the parameters and of the pixels.
        preprocessing: the transforms of the weights in words.
        input_shape: the shape of the pixels of an image of usual size, (1, …); the shape for one
            image is its ``pixels_shape``.
        notes: unrequested changes to the model that affect what it computes, each with the
            alternatives. Random values are reported in ``warning`` instead.
    """

    name: str
    task: str
    weights: str
    trained: bool
    warning: str = ""
    sha256: str = ""
    device: str = "cpu"
    dtype: str = "float32"
    preprocessing: str = ""
    input_shape: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that deserves a look.

    Attributes:
        rule: one of ``hookcli.summary.findings.RULES``.
        layer: the call id or module path that it is about; empty when it is about the run.
        number: the measured number; None when the rule measures nothing.
        threshold: the threshold with which the number was compared.
        sentence: the finding in words, with the number.
        images: the keys of the images that show it; empty when it is about a layer or the whole
            run.
    """

    rule: str
    layer: str
    number: float | None
    threshold: float | None
    sentence: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything that a run found, in the order in which it was found.

    Example:
        >>> result = hookcli.inspect_images(config)
        >>> {row.call_id: row.mean for row in result.rows}

    Attributes:
        model: the model that ran.
        images: the images that went through the model.
        skipped: the images that could not be used.
        rows: one row per call and output, over all images.
        uncalled: the selected layers that never ran.
        layers: the number of selected layers.
        findings: what deserves a look, the gravest first.
        grids: the pictures of feature maps, and what they show.
        attention: one row per attention call, over all images.
        undrawn: the layers for which a Grad-CAM was requested and none was drawn.
        failed: the rules of ``--fail-on`` for which there is a finding.
        out_dir: the run folder; empty when nothing was written.
        files: the files that were written, relative to ``out_dir``.
        seconds: the duration of each stage, by its name.
    """

    model: ModelInfo
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    rows: tuple[LayerRow, ...]
    uncalled: tuple[Uncalled, ...]
    layers: int
    findings: tuple[Finding, ...] = ()
    grids: tuple[Grid, ...] = ()
    attention: tuple[AttentionRow, ...] = ()
    undrawn: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    out_dir: str = ""
    files: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """7 when a rule of ``--fail-on`` has a finding, else 6 when images were skipped, else 0."""
        if self.failed:
            return errors.FAILED_RULE
        return errors.SKIPPED if self.skipped else errors.DONE
