"""The tokens of a model's sequences: the size of a patch, and the number of other tokens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from torch import nn

from hookcli.outside.foreign import ask
from hookcli.records.layouts import NO_TOKENS, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_COLOURS = 4  # the maximum number of channels of an image: RGB and depth


def find_tokens(modules: Mapping[str, nn.Module]) -> dict[str, Tokens]:
    """Return the facts about tokens that ``modules`` show, by path; empty if none shows any.

    A patch convolution takes the colours of an image, and its kernel is as large as its stride. For
    each module, the smallest part of the model around it with a patch convolution counts, if it has
    only one. The numbers of extra tokens are ``num_prefix_tokens`` of timm and
    ``num_detection_tokens`` in configurations of transformers, of the outermost module that has
    them.
    """
    patches = {path: patch for path, module in modules.items() if (patch := _patch_of(module))}
    inside = Counter(above for path in patches for above in list_above(path))
    alone = {
        above: patch
        for path, patch in patches.items()
        for above in list_above(path)
        if inside[above] == 1
    }
    before = {path: _count(module, "num_prefix_tokens") for path, module in modules.items()}
    after = {
        path: _count(ask(module, "config"), "num_detection_tokens")
        for path, module in modules.items()
    }
    found = {}
    for path in modules:
        around = list(list_above(path))
        nearest = next((above for above in around if inside[above]), "")
        around.reverse()
        found[path] = Tokens(
            alone.get(nearest),
            next((n for above in around if (n := before.get(above)) is not None), None),
            next((n for above in around if (n := after.get(above)) is not None), 0),
        )
    return found if any(each != NO_TOKENS for each in found.values()) else {}


def _patch_of(module: nn.Module) -> tuple[int, int] | None:
    if not isinstance(module, nn.Conv2d) or module.in_channels > _MOST_COLOURS:
        return None
    height, width = module.kernel_size
    is_cut = module.stride == module.kernel_size and module.padding in ((0, 0), "valid")
    return (height, width) if is_cut and height * width > 1 else None


def list_above(path: str) -> Iterator[str]:
    """Yield ``path`` and the paths around it, innermost first, up to the model's empty path."""
    yield path
    while path:
        path = path.rpartition(".")[0]
        yield path


def _count(thing: object, name: str) -> int | None:
    number = ask(thing, name)
    return number if type(number) is int and number >= 0 else None
