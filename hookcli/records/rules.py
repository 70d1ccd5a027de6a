"""The rules of findings and their thresholds."""

from __future__ import annotations

FLOAT16_LARGEST = 65504.0  # the largest finite number of float16

RULES: dict[str, float] = {
    "nan": 0,  # more than this many values are NaN
    "inf": 0,  # more than this many values are infinite
    "dead": 0.2,  # at least this share of the channels is zero everywhere
    "constant": 0.2,  # at least this share of the channels holds one value other than zero
    "saturated": 0.2,  # at least this share of the channels never leaves an end of its activation
    "exploding": 20,  # the spread is this many times what its place in the block before lets expect
    "vanishing": 20,  # its place in the block before lets expect this many times the spread
    "no-gradient": 0,  # more than this many layers get no gradient at their output
    "float16": 0.5,  # the largest magnitude is at least this share of what float16 can hold
    "overwritten": 0,  # more than this many layers have an output that is written over later
    "uncalled": 0,  # more than this many selected layers did not run
    "skipped": 0,  # more than this many images were skipped
    "untrained": 0,  # the weights are random; nothing is compared
    "small": 1,  # the image's shorter side is less than this share of the network's
}
"""Every rule with its threshold, the gravest first."""
