"""The language of ``--prune``: ``LAYERS=AMOUNT[:METHOD]``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from hookcli.errors import RequestError

METHODS = ("l1", "random", "ln")


@dataclass(frozen=True, slots=True)
class Prune:
    """The layers to prune, and how.

    Attributes:
        layers: a form of the filter language.
        amount: the share of the weights that is pruned, or with ``ln`` of the output channels,
            above 0 and up to 1.
        method: ``l1`` (the smallest weights), ``random``, or ``ln`` (the channels with the smallest
            L2 norm).
        text: the request as the user wrote it.
    """

    layers: str
    amount: float
    method: str
    text: str


def read_prune(text: str) -> Prune:
    """Parse a request such as ``conv=0.3:l1``.

    Raises:
        RequestError: the text is not such a request.
    """
    layers, equals, what = text.rpartition("=")
    number, colon, method = what.partition(":")
    if not equals or not layers:
        raise RequestError(
            f"--prune {text!r}: it does not say how much", "write LAYERS=AMOUNT: conv=0.3"
        )
    try:
        amount = float(number)
    except ValueError as error:
        raise RequestError(
            f"--prune {text!r}: {number!r} is not a number", "a share from 0 to 1: conv=0.3"
        ) from error
    if not 0 < amount <= 1:
        raise RequestError(f"--prune {text!r}: the amount is a share, more than 0 and at most 1")
    if colon and method not in METHODS:
        close = difflib.get_close_matches(method, METHODS)
        raise RequestError(
            f"--prune {text!r}: {method!r} is not a method",
            f"one of: {', '.join(close or METHODS)}",
        )
    return Prune(layers, amount, method or "l1", text)
