"""Choose which images a page with many photos shows, and how many at first; place thumbnails."""

from __future__ import annotations

import base64
import json
import os
import zlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hookcli.outside import escape
from hookcli.records.runs import MOST_NAMED, MOST_THUMBNAILS
from hookcli.render.report.templates import ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hookcli.records.images import ImageResult
    from hookcli.records.pictures import Thumbnails
    from hookcli.records.report import ReportDocument, TopChannel
    from hookcli.records.runs import Finding

_FIRST = 60  # images shown until the reader asks for all of them
_SHARED = ("call", "picture", "size", "places")  # of a grid, usually the same for all images


def choose_images(document: ReportDocument) -> Sequence[ImageResult]:
    # In a large run, images that findings name come first, then images with a picture of the
    # network's input; images without any picture are left out.
    images = document.images
    if len(images) <= MOST_THUMBNAILS:
        return images
    small = {key for each in document.thumbnails for key in each.images}
    named = {key for finding in document.findings for key in finding.images}
    pictured = [image for image in images if image.seen or image.key in small] or images
    best = sorted(pictured, key=lambda image: (image.key not in named, not image.seen))
    chosen = {image.key for image in best[:MOST_THUMBNAILS]}
    return [image for image in images if image.key in chosen]


def make_contact_sheet(
    document: ReportDocument, images: Sequence[ImageResult], address: Callable[[str], str]
) -> dict[str, object]:
    shown, total = {image.key for image in images}, len(document.images)
    groups = {
        number: Group(_choice(finding), finding.rule, frozenset(finding.images), total)
        for number, finding in enumerate(document.findings)
        if shown.intersection(finding.images)
    }
    note = ""
    if len(images) < total:
        note = (
            f"{len(images):,} of {total:,} images are shown: those of which the run "
            "kept a picture, and of these the ones with a finding first. The figures on this page "
            "are of all images."
        )
    return lay_out(images, document.thumbnails, groups, address, word="finding", note=note)


@dataclass(frozen=True, slots=True)
class Group:
    """Images that the page can select together, such as those that a finding names."""

    title: str  # in the page's list of groups
    word: str  # shown at each image of the group if ``is_mark``
    images: frozenset[str]
    among: int  # the number of all images, inside and outside the group
    is_mark: bool = True


@dataclass(frozen=True, slots=True)
class Sort:
    title: str
    numbers: Mapping[str, float]  # by image key; the smallest come first


def lay_out(
    images: Sequence[ImageResult],
    thumbnails: Iterable[Thumbnails],
    groups: Mapping[int, Group],
    address: Callable[[str], str],
    *,
    word: str,
    note: str = "",
    sorts: Mapping[str, Sort] = MappingProxyType({}),
) -> dict[str, Any]:
    # A tile's ``thumbnail`` is the position of its picture, and the column and row in it. A tile
    # is marked if one of its groups has at most half of the images.
    shown = {image.key for image in images}
    sheets = [each for each in thumbnails if shown.intersection(each.images)]
    at = {
        key: (number, index % sheet.columns, index // sheet.columns)
        for number, sheet in enumerate(sheets)
        for index, key in enumerate(sheet.images)
    }
    found: dict[str, list[int]] = {}
    for number, group in groups.items():
        for key in group.images:
            found.setdefault(key, []).append(number)
    common = {number for number, each in groups.items() if 2 * len(each.images) > each.among}
    same = os.path.commonprefix([image.file for image in images])  # noqa: RUF071  characters
    rules = (_rule(number, each, address) for number, each in enumerate(sheets))

    def describe(image: ImageResult) -> dict[str, object]:
        key, own = image.key, found.get(image.key, ())
        return {
            "image": image,
            "name": image.file[same.rfind("/") + 1 :],
            "thumbnail": at.get(key),
            "findings": own,
            "words": [groups[number].word for number in own if groups[number].is_mark],
            "is_marked": not common.issuperset(own),
            "numbers": {n: sort.numbers[key] for n, sort in sorts.items() if key in sort.numbers},
        }

    return {
        "tiles": [*map(describe, images)],
        "findings": {number: group.title for number, group in groups.items()},
        "style": ours("\n".join(rules)),
        "first": _FIRST,
        "group": word,
        "note": note,
        "sorts": {name: sort.title for name, sort in sorts.items()},
    }


def count_named(finding: Finding, images: int) -> str:
    named = len(finding.images)
    more = " or more" if named == MOST_NAMED < images else ""  # a finding never names more images
    return f"{named:,}{more} of {images:,} images"


def top_for_script(
    document: ReportDocument, index_of: Mapping[str, int], images: Sequence[ImageResult]
) -> list[object]:
    """Return the images with each channel's largest values, as lists for the page's script.

    Each layer is ``[position of the layer, [[channel, [[image, value], …]], …]]``. ``image`` is a
    position on the page or, for an image that the page does not show, its key.
    """
    top_images = document.top_images
    at = {image.key: index for index, image in enumerate(images)}

    def describe(row: TopChannel) -> list[object]:
        values = [None if value is None else float(f"{value:.4g}") for value in row.values]
        best = zip(row.images, values, strict=True)
        return [row.channel, [[at.get(key, escape.for_page(key)), value] for key, value in best]]

    return [
        [index_of[call], [*map(describe, top_images.get(call, ()))]]
        for call in index_of
        if call in top_images or call in document.ranked_images
    ]


def pack_ranked(
    document: ReportDocument, index_of: Mapping[str, int], images: Sequence[ImageResult]
) -> str:
    """Return each channel's images, largest value first, as compressed JSON in base64.

    In the JSON, ``calls`` has a list per layer: the layer's position, the number of images per
    channel, these images' positions (channel after channel), and the values. ``others`` has the
    keys of images that the page does not show; they are counted after the page's images.
    """
    ranked = {call: each for call, each in document.ranked_images.items() if call in index_of}
    named = dict.fromkeys(image for each in ranked.values() for image in each.images)
    at = {image.key: index for index, image in enumerate(images)}
    keys = {n: image.key for n, image in enumerate(document.images) if n in named}
    others = [key for key in keys.values() if key not in at]
    at |= {key: len(images) + index for index, key in enumerate(others)}
    shown_at: dict[int | None, int] = {number: at[key] for number, key in keys.items()}
    calls = [
        [index_of[call], each.each, [shown_at.get(image) for image in each.images], each.values]
        for call, each in ranked.items()
    ]
    facts = {"calls": calls, "others": [escape.for_page(key) for key in others]}
    data = json.dumps(facts, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(data, 9)).decode()


def share_forms(facts: Iterable[dict[str, Any]]) -> tuple[list[object], list[dict[str, object]]]:
    forms: list[object] = []
    shared = []
    for each in facts:
        grids = each["grids"]
        form = [{name: grid[name] for name in _SHARED} for grid in grids]
        if form not in forms:
            forms.append(form)
        own = [{name: grid[name] for name in grid if name not in _SHARED} for grid in grids]
        shared.append({**each, "grids": own, "form": forms.index(form)})
    return forms, shared


def _choice(finding: Finding) -> str:
    layer = f", {finding.layer}" if finding.layer else ""
    return f"{finding.rule}{layer} ({len(finding.images):,})"


def _rule(number: int, sheet: Thumbnails, address: Callable[[str], str]) -> str:
    url = address(sheet.file)
    shown = f'url("{url}")' if url else "none"
    return f".t{number} {{ background-image: {shown}; --columns: {sheet.columns}; }}"
