"""The levels that a value becomes where it is drawn: what makes them and what colours them agree on these."""

from __future__ import annotations

LEVELS = 240
MIDDLE = LEVELS // 2  # the level of zero where levels are signed, with as many on either side of it
NOT_FINITE = 240  # the level that stands for NaN and Inf
