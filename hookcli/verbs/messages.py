"""Issue the messages of several commands: skipped images, damaged runs, uncalled layers."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.records.images import describe_intensities
from hookcli.records.runs import ASSUMED
from hookcli.records.text import and_more, count
from hookcli.records.uncalled import group_uncalled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.outside.urls import Location
    from hookcli.records.calls import Uncalled
    from hookcli.records.images import ImageResult, SkippedImage
    from hookcli.records.runs import ModelInfo
    from hookcli.verbs.call import VerbCall


def begin(call: VerbCall, skipped: Sequence[SkippedImage], *models: ModelInfo) -> None:
    warn_of_skipped(call, skipped)
    texts = (text for model in models for text in (model.warning, *model.notes))
    for text in dict.fromkeys(filter(None, texts)):
        (call.say if text == ASSUMED else call.warn)(text)
    call.listener.begin()


def warn_of_skipped(call: VerbCall, skipped: Sequence[SkippedImage]) -> None:
    for reason in dict.fromkeys(image.reason for image in skipped):
        files = [repr(image.file) for image in skipped if image.reason == reason]
        some = f"{count(len(files), 'image')} ({', '.join(files[:3])}{and_more(len(files) - 3)})"
        call.warn(f"skipped {some if files[1:] else files[0]}: {reason}")


def show_page(call: VerbCall, page: Location) -> None:
    if not isinstance(page, Path) or not webbrowser.open(page.resolve().as_uri()):
        call.warn("`open`: no browser opened the page, which must be a file on this machine")


def warn_of_damage(call: VerbCall, damage: Sequence[str]) -> None:
    """Warn that files of a run are missing or changed, if ``damage`` has sentences about them."""
    if damage:
        more = and_more(len(damage) - 1, " (and {} more)")
        call.warn(f"the folder is not as the run left it: {damage[0]}{more}")


def describe_images(call: VerbCall, images: Sequence[ImageResult]) -> None:
    for note in dict.fromkeys(image.note for image in images if image.note):
        call.say(f"the model saw {note}")
    for text, is_warning in describe_intensities(images):
        (call.warn if is_warning else call.say)(text)


def describe_uncalled(
    call: VerbCall, uncalled: Sequence[Uncalled], verdict: str = "not called"
) -> None:
    for group in group_uncalled((each.layer.label, each.reason) for each in uncalled):
        number = "" if group.is_few else f", {count(len(group.layers), 'layer')}"
        call.say(f"{verdict}{number}: {group.names}: {group.reason}")
