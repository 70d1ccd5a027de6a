"""Findings: facts in the records of a run that deserve a closer look, found by rules and ranked.

Everything is derived from records and their summaries per channel; nothing here sees a tensor. A
rule that needs the model itself (which module produced a NaN) receives the result.
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
    """Return all findings, the most serious rule first, and the largest number first in a rule."""
    limits = {**RULES, **thresholds}
    del limits["untrained"]  # it compares nothing
    finders = (*layer_findings.FINDERS, find_channels, *run_findings.FINDERS)
    found = [
        replace(finding, threshold=limits.get(finding.rule))
        for find in finders
        for finding in find(evidence, limits)
    ]
    order = list(RULES)
    return tuple(sorted(found, key=lambda f: (order.index(f.rule), -(f.number or 0.0))))
