"""Read class names from a file of the user, or return the class names of ImageNet."""

from __future__ import annotations

import json
from pathlib import Path

from hookcli.errors import RequestError
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.files import read_regular

IMAGENET = "imagenet"
_HINT = "a text file with a name per line, a JSON list, or imagenet"


def read_categories(text: str) -> tuple[str, ...]:
    # The file has a name per line, or it is JSON: a list of names, or a mapping from an index to a
    # name or to a list that ends in a name.
    if text == IMAGENET:
        return tuple(torchvision.models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"])
    try:
        content = read_regular(Path(text)).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise RequestError(f"cannot read the class names in {text!r}: {reason}", _HINT) from error
    names = _read_json(content) if content.lstrip()[:1] in ("[", "{") else content.splitlines()
    if not names or not all(names):
        raise RequestError(f"{text!r} does not hold a name for each class", _HINT)
    return tuple(names)


def _read_json(content: str) -> list[str]:
    try:
        found = json.loads(content)
        if isinstance(found, dict):
            found = [found[str(index)] for index in range(len(found))]
        return [str(each[-1] if isinstance(each, list) else each) for each in found]
    except (ValueError, LookupError, TypeError):
        return []
