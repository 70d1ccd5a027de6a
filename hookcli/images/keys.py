"""A key for each image of a run: safe as a file name, and its own."""

from __future__ import annotations

from hookcli.files import safe_name


class KeyMaker:
    """Makes keys, no two of which differ by upper and lower case alone."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next_numbers: dict[str, int] = {}  # by stem; all numbers before are taken

    def make_key(self, name: str) -> str:
        """Return ``name`` as part of a file name, followed by ``-2``, ``-3`` where it is taken."""
        stem = safe_name(name)
        key, number = stem, self._next_numbers.get(stem.lower(), 2)
        while key.lower() in self._taken:
            key = f"{stem}-{number}"
            number += 1
        self._next_numbers[stem.lower()] = number
        self._taken.add(key.lower())
        return key
