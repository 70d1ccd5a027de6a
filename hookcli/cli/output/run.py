"""Messages of the commands that are not verbs yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.cli.output import console
from hookcli.cli.output.wording import to_words
from hookcli.records.images import describe_intensities
from hookcli.records.text import and_more, count
from hookcli.records.uncalled import group_uncalled

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hookcli.records.calls import Uncalled
    from hookcli.run.result import RunResult


def warn_of_damage(damage: Sequence[str]) -> None:
    """Warn that files of a run are missing or have changed; ``damage`` has a sentence for each."""
    if damage:
        more = and_more(len(damage) - 1, " (and {} more)")
        console.warn(f"the folder is not as the run left it: {damage[0]}{more}")


def print_notes(result: RunResult, chosen: Collection[str], *, quiet: bool) -> None:
    """Print on stderr how inputs were made from images, and which layers did not run.

    Only inputs such as clips and pairs are mentioned, not single pictures. ``chosen`` holds the
    labels of all chosen layers.
    """
    for note in dict.fromkeys(image.note for image in result.images if image.note):
        console.say(f"the model saw {to_words(note)}", quiet=quiet)
    for text, is_warning in describe_intensities(result.images):
        if is_warning:
            console.warn(text)
        else:
            console.say(text, quiet=quiet)
    print_uncalled(result.uncalled, chosen, quiet=quiet)


def print_uncalled(uncalled: Sequence[Uncalled], chosen: Collection[str], *, quiet: bool) -> None:
    """Print on stderr which layers did not run, with one line for each reason.

    ``chosen`` holds the labels of all chosen layers. hookcli needs them to replace many names by a
    glob.
    """
    for group in group_uncalled([(each.layer.label, each.reason) for each in uncalled], chosen):
        number = "" if group.is_few else f", {count(len(group.layers), 'layer')}"
        console.say(f"not called{number}: {group.names}: {group.reason}", quiet=quiet)
