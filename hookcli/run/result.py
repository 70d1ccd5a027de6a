"""The result of a run over images: the model, the images, and a row per layer call."""

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
    from hookcli.records.runs import Finding, ModelInfo


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    Attributes:
        rows: one row per layer call and output tensor, with statistics over all images.
        uncalled: the selected layers that never ran.
        layers: the number of selected layers.
        findings: the findings, the most serious first.
        grids: the pictures of feature maps, with the content of each tile.
        attention: one row per attention call, with statistics over all images.
        undrawn: the layers for which a Grad-CAM or ``--heat`` was requested, but nothing was drawn.
        failed: the rules of ``--fail-on`` that have a finding.
        out_dir: the run folder; empty when nothing was written.
        files: the written files, relative to ``out_dir``.
        seconds: the duration of each stage in seconds, by the name of the stage.
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
        return errors.choose_code(failed=bool(self.failed), skipped=bool(self.skipped))
