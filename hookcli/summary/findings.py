"""Findings: results of a run that deserve a closer look, found by rules and ranked.

The rules read records and their sums over images, never tensors. If a rule needs the model itself,
as to find the module that produced a NaN, the caller runs the model and passes the answer in
``Evidence``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.records.rules import RULES
from hookcli.summary import layer_findings, run_findings
from hookcli.summary.channel_findings import find_channels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookcli.records.runs import Finding
    from hookcli.summary.evidence import Evidence


def list_findings(
    evidence: Evidence, thresholds: Mapping[str, float] = RULES
) -> tuple[Finding, ...]:
    """Return all findings, the most serious rules first, then the largest numbers."""
    limits = {**RULES, **thresholds}
    del limits["untrained"]  # this rule has no threshold
    finders = (*layer_findings.FINDERS, find_channels, *run_findings.FINDERS)
    found = [
        replace(finding, threshold=limits.get(finding.rule))
        for find in finders
        for finding in find(evidence, limits)
    ]
    order = list(RULES)
    return tuple(sorted(found, key=lambda f: (order.index(f.rule), -(f.number or 0.0))))
