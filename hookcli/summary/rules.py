"""The rules of findings, and from where on each of them holds."""

from __future__ import annotations

FLOAT16_LARGEST = 65504.0  # the largest finite number of float16

RULES: dict[str, float] = {
    "nan": 0,  # values that are NaN, more than
    "inf": 0,  # values that are infinite, more than
    "dead": 0.2,  # share of channels that are zero everywhere, at least
    "constant": 0.2,  # share of channels that hold one value other than zero, at least
    "saturated": 0.2,  # share of channels that never leave an end of their activation, at least
    "exploding": 20,  # spread over that of the layer of the same type before, at least
    "vanishing": 20,  # the other way round
    "no-gradient": 0,  # layers whose output gets no gradient, more than
    "float16": 0.5,  # largest magnitude over what float16 holds, at least
    "overwritten": 0,  # layers whose output is written over in place later, more than
    "uncalled": 0,  # selected layers that did not run, more than
    "skipped": 0,  # images that were skipped, more than
    "untrained": 0,  # weights that are random
    "small": 1,  # shorter side of the image over what the network sees, less than
}
"""Every rule with its threshold, the gravest first."""
