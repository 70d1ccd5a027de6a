"""The keys of a run's images: unique, and safe as file names."""

from __future__ import annotations

from hookcli.outside.files import safe_name


class KeyMaker:
    """Makes keys; no two of them differ only by upper and lower case."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next_numbers: dict[str, int] = {}  # by stem; all lower numbers are taken

    def make_key(self, name: str) -> str:
        """Return ``name`` made safe as a file name, with ``-2``, ``-3``, ... if it is taken."""
        stem = safe_name(name)
        key, number = stem, self._next_numbers.get(stem.lower(), 2)
        while key.lower() in self._taken:
            key = f"{stem}-{number}"
            number += 1
        self._next_numbers[stem.lower()] = number
        self._taken.add(key.lower())
        return key
