"""Read the labels of images from names of folders, from a CSV file, or from Python values."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from hookcli.analysis.images import list_files, shorten_paths
from hookcli.errors import RequestError
from hookcli.outside.escape import for_page, reversible
from hookcli.outside.files import read_regular
from hookcli.outside.urls import to_local

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.reading.load import Run

_MOST = 64 << 20  # bytes of a file of labels
_HEADER = "its first line names the columns image and label"


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of images, as the user gave them.

    ``given`` lists the labels in the order of the images, or maps the path, file name or key of an
    image to its label. If ``given`` is None, an image's label is the name of the image's folder.
    ``source`` names the labels in error messages.
    """

    source: str
    given: Sequence[object] | Mapping[str, str] | None

    @classmethod
    def read(cls, given: str | Sequence[object] | Mapping[str, object]) -> Labels:
        if isinstance(given, str):
            return cls(repr(given), None if given == "folders" else _read_file(given))
        if not isinstance(given, Mapping):
            return cls("`labels`", given)
        pairs = ((str(image), _show(label)) for image, label in given.items())
        return cls("`labels`", {image: label for image, label in pairs if label})

    def of(self, run: Run) -> dict[str, str]:
        """Map the keys of a run's labelled images to their labels, which are escaped for pages."""
        files = list_files(run)
        if self.given is None:
            folders = {key: PurePosixPath(file).parent.name for key, file in files.items()}
            return {key: _show(folder or ".") for key, folder in folders.items()}
        if not isinstance(self.given, Mapping):
            if len(self.given) != len(files):
                what = f"`labels` has {len(self.given)} labels, and the run has {len(files)} images"
                raise RequestError(what, "give one for each image, in the order of the run")
            pairs = zip(files, map(_show, self.given), strict=True)
            return {key: label for key, label in pairs if label}
        alone = Counter(PurePosixPath(file).name for file in files.values())
        found: dict[str, str] = {}
        ends = shorten_paths(files)
        for key, file in files.items():
            last = PurePosixPath(file).name
            name = next((each for each in (file, key, ends[key], last) if each in self.given), None)
            if name == last and name not in (file, key, ends[key]) and alone[last] > 1:
                raise RequestError(
                    f"{self.source} has a label for {last!r}, which is the name of "
                    f"{alone[last]} images of the run",
                    f"name them by their path: {file!r}",
                )
            if name is not None:
                found[key] = self.given[name]
        if not found:
            raise RequestError(
                f"{self.source} has labels for other files: none of its {len(self.given)} names "
                f"is an image of the run, such as {next(iter(files.values()), '')!r}",
                "name images by their path, file name or key",
            )
        return found


def _read_file(name: str) -> dict[str, str]:
    try:
        text = read_regular(Path(to_local(name)), _MOST).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    except OSError as error:
        what = f"cannot read {name!r}: {error.strerror}"
        raise RequestError(what, "`labels='folders'`, or a CSV file") from error
    except (ValueError, csv.Error) as error:
        raise RequestError(f"{name!r} is not a CSV file: {error}", _HEADER) from error
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        image, label = row.get("image"), row.get("label")
        if image is None or label is None:
            raise RequestError(f"{name!r} has no image and label in line {number}", _HEADER)
        shown = _show(label)
        if label and found.setdefault(image, shown) != shown:
            what = f"{name!r} has two labels for {image!r}: {found[image]} and {shown}"
            raise RequestError(what, "give each image one label")
    if not rows:
        raise RequestError(f"{name!r} has no labels", _HEADER)
    return found


def _show(label: object) -> str:
    return "" if label is None else for_page(reversible(str(label)))


def count_labels(labels: Mapping[str, str]) -> dict[str, int]:
    return dict(sorted(Counter(labels.values()).items(), key=lambda each: (-each[1], each[0])))
