"""List the rules by which hookcli reports findings, with their default thresholds."""

from __future__ import annotations

FLOAT16_LARGEST = 65504.0  # the largest finite number of float16

RULES: dict[str, float] = {
    "nan": 0,  # more than this many values are NaN
    "inf": 0,  # more than this many values are infinite
    "not-deterministic": 0,  # more than this many calls return other values in a second pass
    "dead": 0.2,  # at least this share of the channels is zero everywhere
    "constant": 0.2,  # at least this share of the channels holds one value other than zero
    "saturated": 0.2,  # at least this share of the channels stays at an end of the activation
    "exploding": 20,  # the standard deviation is above the expected value by at least this factor
    "vanishing": 20,  # the standard deviation is below the expected value by at least this factor
    "no-gradient": 0,  # more than this many layers get no gradient at their output
    "chance": 0,  # more than this many Grad-CAMs find the score no faster than a random map
    "float16": 0.5,  # the largest magnitude is at least this share of float16's largest number
    "overwritten": 0,  # more than this many layers have an output that is overwritten later
    "uncalled": 0,  # more than this many selected layers did not run
    "skipped": 0,  # more than this many images were skipped
    "untrained": 0,  # the weights are random; the rule has no threshold
    "narrow": 0.05,  # a picture uses less than this share of its range of values
    "small": 1,  # the image's shorter side is less than this share of the network input's
}
"""Every rule with its default threshold, the most serious rule first."""
SHARES = ("dead", "constant", "saturated", "narrow")
"""The rules whose threshold must be from 0 to 1; other thresholds have no upper limit."""
