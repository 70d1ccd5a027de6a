"""Indices and regular expressions in forms of the filter language."""

from __future__ import annotations

import re

from hookcli.errors import FilterSyntaxError


def to_slice(form: str, first: int, last: int, count: int) -> slice:
    """Return the range from ``first`` to ``last``, both included and counted from 1.

    Negative numbers count from the end.

    Raises:
        FilterSyntaxError: there is no such layer.
    """
    if first == 0 or last == 0:
        raise FilterSyntaxError(
            f"{form!r} has the index 0", "layers are counted from 1: [1] is the first"
        )
    start = first - 1 if first > 0 else count + first
    stop = last if last > 0 else count + last + 1
    if not 0 <= start < count or not start < stop <= count:
        raise FilterSyntaxError(
            f"{form!r} is out of range", f"this model has {count}: [1] to [{count}], or [-1]"
        )
    return slice(start, stop)


def to_pattern(text: str) -> re.Pattern[str]:
    """Return the regular expression of a form.

    Raises:
        FilterSyntaxError: it is not a regular expression.
    """
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise FilterSyntaxError(f"not a regular expression: {text!r:.200} ({reason})") from error
