"""Products of two tensors: the axes that are summed over, and the axes of the product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

# The names of both factors of a product, if the caller passes them by name.
FACTORS = {
    "addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"), "bmm": ("input", "mat2"),
    "einsum": ("", ""), "matmul": ("input", "other"), "mm": ("input", "mat2"),
}  # fmt: skip


def letters_of(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor
) -> tuple[tuple[Tensor, list[str]], tuple[Tensor, list[str]], list[str]] | None:
    """Return the factors, and a letter for each axis of both and of the product (``einsum``)."""
    # Products of vectors give None; a ValueError means that there are not two factors.
    if name == "einsum":
        equation, *operands = args
        factors = operands[0] if isinstance(operands[0], (list, tuple)) else operands
        inside, arrow, out = equation.replace(" ", "").partition("->")
        terms = [*inside.split(","), out if arrow else _output_letters(inside)]
        tensors = (*factors, output)
        left, right, made = (_letters_in(*pair) for pair in zip(terms, tensors, strict=True))
        return (factors[0], left), (factors[1], right), made
    first = 1 if name in ("addmm", "baddbmm") else 0  # the first argument is the summand
    left, right = (
        kwargs[word] if word in kwargs else args[place]
        for place, word in enumerate(FACTORS[name], first)
    )
    if left.dim() < 2 or right.dim() < 2:
        return None
    lead = [str(axis) for axis in range(output.dim() - 2)]
    return (
        (left, [*lead[len(lead) + 2 - left.dim() :], "row", "summed"]),
        (right, [*lead[len(lead) + 2 - right.dim() :], "summed", "column"]),
        [*lead, "row", "column"],
    )


def _letters_in(term: str, tensor: Tensor) -> list[str]:
    """Return a letter for each axis of an ``einsum`` tensor; ``...`` covers any number of axes."""
    before, dots, after = term.partition("...")
    count = tensor.dim() - len(before) - len(after)
    return [*before, *(f"{dots}{place}" for place in range(count, 0, -1)), *after]


def _output_letters(inside: str) -> str:
    """Return the output letters of an equation without ``->``: the letters that occur once."""
    once = [letter for letter in sorted(set(inside) - set(",.")) if inside.count(letter) == 1]
    dots = "..." if "..." in inside else ""
    return dots + "".join(once)
