"""The rules of findings and their thresholds."""

from __future__ import annotations

FLOAT16_LARGEST = 65504.0  # the largest finite number of float16

RULES: dict[str, float] = {
    "nan": 0,  # more than this many values are NaN
    "inf": 0,  # more than this many values are infinite
    "dead": 0.2,  # at least this share of the channels is zero everywhere
    "constant": 0.2,  # at least this share of the channels holds one value other than zero
    "saturated": 0.2,  # at least this share of the channels never leaves an end of its activation
    "exploding": 20,  # the standard deviation is this many times what its counterpart suggests
    "vanishing": 20,  # its counterpart suggests this many times the standard deviation
    "no-gradient": 0,  # more than this many layers get no gradient at their output
    "float16": 0.5,  # the largest magnitude is at least this share of float16's largest number
    "overwritten": 0,  # more than this many layers have an output that is overwritten later
    "uncalled": 0,  # more than this many selected layers did not run
    "skipped": 0,  # more than this many images were skipped
    "untrained": 0,  # the weights are random; nothing is compared
    "small": 1,  # the image's shorter side is less than this share of the network's
}
"""Every rule with its threshold, the most serious first."""
