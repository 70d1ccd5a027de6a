"""Record which edits (``--edit``) of a run were applied, and which first made a NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class EditEffects:
    """Records which edits a run has applied, and which edit was the first to make a NaN or Inf."""

    used: set[str] = field(default_factory=set)  # the texts of the edits that were applied
    # for ``NaN`` and ``Inf``, the text of the first edit that turned finite numbers into it
    made: dict[str, str] = field(default_factory=dict)

    def merge(self, later: EditEffects) -> None:
        """Add the effects that the edits had in later passes."""
        self.used |= later.used
        self.made = later.made | self.made
