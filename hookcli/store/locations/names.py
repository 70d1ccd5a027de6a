"""Define the names of the files and folders of a run, and tell which names a run may write."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.outside.files import safe_name
from hookcli.records import tensor_index

if TYPE_CHECKING:
    from hookcli.records.calls import Call

REQUEST, MANIFEST = "run.json", "manifest.json"
ANALYSIS = "analysis.json"  # lists the files of an analysis
LAYERS, SKIPPED, TOP_IMAGES = "layers.csv", "skipped.csv", "top_images.csv"
ATTENTION_TABLE = "attention.csv"
DOCUMENT, PAGE = "report.json", "report.html"
OVERVIEW, GRADIENT_FLOW = "overview.png", "gradient_flow.png"

RECORDS = "records.parquet"  # a folder: readers of Parquet open it like a file
TENSORS, PARTS = tensor_index.FOLDER, "parts"
LOCK = ".hookcli.lock"  # on this machine; empty, and never listed as a file of the run
LOCKS = "lock"  # a folder, only in cloud storage
SEEN, GRIDS, SHEETS, CAM, SALIENCY = "seen", "grids", "sheets", "cam", "saliency"
MAPS, HEAT, ATTENTION, THUMBNAILS = "maps", "heat", "attention", "thumbnails"

INDEX = f"{TENSORS}/index.json"
JOURNAL = f"{PARTS}/written.jsonl"
TOP = f"{PARTS}/top.json"

FOLDERS_BY_IMAGE = frozenset({GRIDS, MAPS, HEAT, CAM, ATTENTION, SALIENCY})  # a folder per image
_OF_PICTURES = frozenset({SEEN, SHEETS, SALIENCY})  # these folders hold a picture per image
FOLDERS = FOLDERS_BY_IMAGE | _OF_PICTURES | {PARTS, RECORDS, TENSORS, THUMBNAILS}

_ALWAYS = frozenset({JOURNAL, REQUEST, MANIFEST, TOP, LAYERS, SKIPPED, PAGE, DOCUMENT})
_CHART = re.compile(r"(overview|gradient_flow)\.(png|svg|pdf)")
_NAME = r"[\w.#-]+"  # no colon and no backslash, which lead elsewhere on Windows
_PART = re.compile(  # earlier versions wrote a journal ``later`` in cloud storage
    rf"{PARTS}/(\d+\.json|(\d+|later)\.written\.jsonl)|{re.escape(RECORDS)}/{_NAME}\.parquet"
)
_SHARD = re.compile(rf"{TENSORS}/shard-\d+\.safetensors|{INDEX}")
_PICTURE = re.compile(rf"({'|'.join(_OF_PICTURES)})/({_NAME})\.(jpg|png|svg|pdf)")
_THUMBNAILS = re.compile(rf"{THUMBNAILS}/\d{{6,}}\.jpg")
_NUMBERED = re.compile(rf"({'|'.join(FOLDERS_BY_IMAGE)})/({_NAME})/\d{{3,}}_{_NAME}\.(png|svg|pdf)")

_LONGEST, _LONGEST_PICTURE = 60, 100  # a path has 260 characters on Windows, with its folders
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)", re.I)  # on Windows

PARTIAL = ".partial-"  # prefix of the name of a file that is being written

UNJOURNALED = frozenset({JOURNAL, MANIFEST, PAGE})  # files that may be written without a journal


def portable_name(text: str) -> str:
    name = safe_name(text, len(text))
    device = _DEVICE.match(name)
    return _shorten(f"{device[0]}_{name[device.end() :]}" if device else name, _LONGEST)


def _shorten(name: str, most: int) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return name if len(name) <= most else f"{name[: most - 9]}-{digest}"


def chunk_file(number: int) -> str:
    return f"{PARTS}/{number:06d}.json"


def chunk_journal(number: int) -> str:
    return f"{PARTS}/{number:06d}.written.jsonl"


def lock_file(number: int) -> str:
    return f"{LOCKS}/{number:06d}.json"


def is_journal(name: str) -> bool:
    return name.startswith(f"{PARTS}/") and name.endswith("written.jsonl")


def records_file(number: int) -> str:
    return f"{RECORDS}/part-{number:06d}.parquet"


def shard_file(number: int) -> str:
    return f"{TENSORS}/shard-{number:06d}.safetensors"


def seen_file(image_key: str) -> str:
    return f"{SEEN}/{image_key}.jpg"


def thumbnails_file(number: int) -> str:
    return f"{THUMBNAILS}/{number:06d}.jpg"


def grid_name(call: Call) -> str:
    index = f"#{call.call_index}" if call.call_index else ""
    key = f".{safe_name(call.output_key)}" if call.output_key else ""
    side = "" if call.side == "output" else f".{call.side}"
    target = f".{safe_name(call.target)}" if call.target else ""
    name = f"{call.order:03d}_{safe_name(call.layer.label)}{index}{key}{side}{target}"
    return f"{_shorten(name, _LONGEST_PICTURE)}.png"


def picture_file(folder: str, image_key: str, picture: str) -> str:
    return f"{folder}/{image_key}/{picture}"


def sheet_file(image_key: str) -> str:
    return f"{SHEETS}/{image_key}.png"


def saliency_file(image_key: str, target: str) -> str:
    return f"{SALIENCY}/{image_key}{f'/000_saliency.{safe_name(target)}' if target else ''}.png"


def is_usual(name: str) -> bool:
    # Earlier versions gave images and pictures names that are too long, or a device's on Windows.
    picture = _PICTURE.fullmatch(name) or _NUMBERED.fullmatch(name)
    last = name.rpartition("/")[2].rpartition(".")[0].removesuffix(".maps")
    is_short = len(last) <= _LONGEST_PICTURE
    return picture is None or (is_short and portable_name(picture[2]) == picture[2])


def list_formats(picture: str, form: str) -> list[str]:
    return list(dict.fromkeys((picture, f"{picture.removesuffix('.png')}.{form}")))


def is_sheet(name: str) -> bool:
    return name.startswith(f"{SHEETS}/")


def is_shard(name: str) -> bool:
    return name.startswith(f"{TENSORS}/") and name != INDEX


def is_records_file(name: str) -> bool:
    folder, _, last = name.partition("/")
    return folder == RECORDS and last.endswith(".parquet") and "/" not in last


def holds_data(name: str) -> bool:
    return name.endswith((".csv", ".parquet", ".safetensors")) or name == INDEX


def is_run_file(name: str) -> bool:
    """Return whether a run can write a file of this name; forged manifests list other names."""
    if not name.isprintable() or not {".", ".."}.isdisjoint(name.split("/")):
        return False
    patterns = (_PART, _SHARD, _CHART, _PICTURE, _NUMBERED, _THUMBNAILS)
    fixed = {TOP_IMAGES, ATTENTION_TABLE, *_ALWAYS}
    return name in fixed or any(each.fullmatch(name) for each in patterns)


@dataclass(frozen=True, slots=True)
class PlannedNames:
    keys: frozenset[str] = frozenset()  # the keys of the images
    folders: frozenset[str] = frozenset()  # folders that not every run writes: ``seen``
    files: frozenset[str] = frozenset()  # files that not every run writes: ``top_images.csv``
    form: str = "png"  # the format in which pictures are written in addition to PNG
    replace_run: bool = False  # the run that the folder holds may be replaced or resumed
    replace_any: bool = False  # the folder may also hold files that no run wrote

    def includes(self, name: str) -> bool:
        if name in _ALWAYS or name in self.files or _PART.fullmatch(name):
            return True
        if _SHARD.fullmatch(name) or _THUMBNAILS.fullmatch(name):
            return name.partition("/")[0] in self.folders
        match = _PICTURE.fullmatch(name) or _NUMBERED.fullmatch(name)
        if match is None:
            return False
        folder, key, form = match.groups()
        return folder in self.folders and key in self.keys and form in {"jpg", "png", self.form}

    def uses(self, folder: str) -> bool:
        top, _, key = folder.partition("/")
        return (top in self.folders and (not key or key in self.keys)) or folder in (PARTS, RECORDS)
