"""Declare what a run returns: its model, images, rows, findings, files and exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli import errors

if TYPE_CHECKING:
    from hookcli.records.attention_records import AttentionRow
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import ImageResult, SkippedImage
    from hookcli.records.pictures import Grid, HeatPicture
    from hookcli.records.rows import LayerRow
    from hookcli.records.runs import Finding, ModelInfo


@dataclass(frozen=True, slots=True)
class RunResult:
    model: ModelInfo
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    rows: tuple[LayerRow, ...]  # one per layer call and output tensor, over all images
    uncalled: tuple[Uncalled, ...]
    layers: int  # how many were selected
    findings: tuple[Finding, ...] = ()  # the most serious first
    grids: tuple[Grid, ...] = ()
    attention: tuple[AttentionRow, ...] = ()  # one per attention call, over all images
    cams: tuple[HeatPicture, ...] = ()
    # by layer: why its requested Grad-CAM or heat map was not drawn
    undrawn: dict[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()  # the rules of ``--fail-on`` that have a finding
    out_dir: str = ""  # empty when nothing was written
    files: tuple[str, ...] = ()  # relative to ``out_dir``
    seconds: dict[str, float] = field(default_factory=dict)  # by the name of the stage

    @property
    def exit_code(self) -> int:
        return errors.choose_code(failed=bool(self.failed), skipped=bool(self.skipped))
