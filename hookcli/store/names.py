"""The names of the files and folders of a run folder, each written down here once. Names only, no file is touched.

Names are relative to the run folder, with ``/`` between folders.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

REQUEST, MANIFEST = "run.json", "manifest.json"
LAYERS, SKIPPED, TOP_IMAGES = "layers.csv", "skipped.csv", "top_images.csv"
DOCUMENT, PAGE = "report.json", "report.html"
OVERVIEW, GRADIENT_FLOW = "overview.png", "gradient_flow.png"

RECORDS = "records.parquet"  # a folder, which readers of Parquet open like a file
TENSORS, PARTS = "tensors", "parts"
SEEN, GRIDS, SHEETS, CAM, SALIENCY = "seen", "grids", "sheets", "cam", "saliency"

INDEX = f"{TENSORS}/index.json"
JOURNAL = f"{PARTS}/written.jsonl"
TOP = f"{PARTS}/top.json"

_ALWAYS = frozenset({REQUEST, MANIFEST, JOURNAL, TOP, LAYERS, SKIPPED, PAGE, DOCUMENT})
_OPTIONAL = frozenset({TOP_IMAGES, OVERVIEW, GRADIENT_FLOW})
_PART = re.compile(rf"{PARTS}/\d+\.json|{re.escape(RECORDS)}/[^/]+\.parquet")
_SHARD = re.compile(rf"{TENSORS}/shard-\d+\.safetensors|{INDEX}")
_PICTURE = re.compile(rf"({SEEN}|{SHEETS}|{SALIENCY})/([^/]+)\.(?:jpg|png)")
_NUMBERED = re.compile(rf"({GRIDS}|{CAM})/([^/]+)/\d{{3,}}_[^/]+\.png")

FOLDERS = frozenset({PARTS, RECORDS, TENSORS, SEEN, SHEETS, SALIENCY, GRIDS, CAM})
FOLDERS_BY_IMAGE = frozenset({GRIDS, CAM})  # those with a folder for each image
UNJOURNALED = frozenset({JOURNAL, MANIFEST, PAGE})  # written when there is no journal


def chunk_file(number: int) -> str:
    """``parts/000012.json``."""
    return f"{PARTS}/{number:06d}.json"


def records_file(number: int) -> str:
    """``records.parquet/part-000012.parquet``."""
    return f"{RECORDS}/part-{number:06d}.parquet"


def shard_file(number: int) -> str:
    """``tensors/shard-000012.safetensors``."""
    return f"{TENSORS}/shard-{number:06d}.safetensors"


def seen_file(image_key: str) -> str:
    """``seen/cat.jpg``: what the network saw."""
    return f"{SEEN}/{image_key}.jpg"


def grid_file(image_key: str, picture: str) -> str:
    """``grids/cat/001_conv1.png``."""
    return f"{GRIDS}/{image_key}/{picture}"


def sheet_file(image_key: str) -> str:
    """``sheets/cat.png``."""
    return f"{SHEETS}/{image_key}.png"


def cam_file(image_key: str, picture: str) -> str:
    """``cam/cat/001_layer4.png``."""
    return f"{CAM}/{image_key}/{picture}"


def saliency_file(image_key: str) -> str:
    """``saliency/cat.png``."""
    return f"{SALIENCY}/{image_key}.png"


def is_sheet(name: str) -> bool:
    """Whether a picture shows all layers of an image, and not one."""
    return name.startswith(f"{SHEETS}/")


def is_shard(name: str) -> bool:
    """Whether a file of a run holds tensors."""
    return name.startswith(f"{TENSORS}/") and name != INDEX


def is_records_file(name: str) -> bool:
    """Whether a file is one of those that ``records.parquet`` consists of; a manifest may list anything."""
    folder, _, last = name.partition("/")
    return folder == RECORDS and last.endswith(".parquet") and "/" not in last


def holds_data(name: str) -> bool:
    """Whether a file of a run holds what later commands compute with, and not a picture or a page."""
    return name.endswith((".csv", ".parquet", ".safetensors")) or name == INDEX


def is_run_file(name: str) -> bool:
    """Whether a run could have written a file of this name; a manifest may list anything."""
    if not name.isprintable() or not {".", ".."}.isdisjoint(name.split("/")):
        return False
    patterns = (_PART, _SHARD, _PICTURE, _NUMBERED)
    return name in _ALWAYS | _OPTIONAL or any(each.fullmatch(name) for each in patterns)


@dataclass(frozen=True, slots=True)
class PlannedNames:
    """The names that a run may write, as far as they can be told before it has begun.

    Attributes:
        keys: of the images.
        pictures: the folders in which it writes pictures: ``seen``, ``grids``, …
        optional: those of ``top_images.csv``, ``overview.png`` and ``gradient_flow.png`` that it writes.
        tensors: whether it keeps tensors.
    """

    keys: frozenset[str] = frozenset()
    pictures: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    tensors: bool = False

    def includes(self, name: str) -> bool:
        """Whether a file of this name, relative to the run folder, may be written."""
        if name in _ALWAYS or name in self.optional or _PART.fullmatch(name):
            return True
        if _SHARD.fullmatch(name):
            return self.tensors
        match = _PICTURE.fullmatch(name) or _NUMBERED.fullmatch(name)
        return match is not None and match[1] in self.pictures and match[2] in self.keys

    def uses(self, folder: str) -> bool:
        """Whether something may be written into this folder of the run folder."""
        top, _, key = folder.partition("/")
        if key:
            return top in self.pictures and key in self.keys
        always = top in (PARTS, RECORDS) or top in self.pictures
        return always or (top == TENSORS and self.tensors)
