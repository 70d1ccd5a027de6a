"""What deserves a look: rules over the records of a run, ranked.

Everything is told from records and their per-channel summary; nothing here sees a tensor. A rule that
needs the model itself (who produced a NaN) is given what was found out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.summary import layer_findings, run_findings
from hookcli.summary.evidence import Evidence
from hookcli.summary.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookcli.records.runs import Finding

__all__ = ["RULES", "Evidence", "find"]


def find(evidence: Evidence, thresholds: Mapping[str, float] = RULES) -> tuple[Finding, ...]:
    """All findings, the gravest rule first, within a rule the largest number first."""
    limits = {**RULES, **thresholds}
    found = [
        *layer_findings.find_not_finite(evidence, limits),
        *layer_findings.find_channels(evidence, limits),
        *layer_findings.find_scales(evidence, limits),
        *layer_findings.find_without_gradient(evidence, limits),
        *layer_findings.find_float16(evidence, limits),
        *run_findings.find_overwritten(evidence, limits),
        *run_findings.find_in_run(evidence, limits),
    ]
    order = list(RULES)
    return tuple(sorted(found, key=lambda f: (order.index(f.rule), -(f.number or 0.0))))
