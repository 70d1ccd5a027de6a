"""Describe how far the answers of two models agree, for one image and over all images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from hookcli.outside.documents import Distance, Whole, keywords

if TYPE_CHECKING:
    from collections.abc import Mapping

AnswerKind: TypeAlias = Literal["top class", "labels", "masks", "boxes", "output"]
Share: TypeAlias = Annotated[float, keywords(minimum=0, maximum=1)]


@dataclass(frozen=True, slots=True)
class Answer:
    """How far the answers of A and B agree, for one image or for all images.

    Attributes:
        kind: what the answers are: the ``top class``, ``labels`` that may all be true, ``masks``,
            ``boxes``, or the numbers of any other ``output``.
        share: the share of top classes, labels, pixels or boxes that are the same in A and B,
            averaged over the images. Two boxes are the same if they have the same class, and their
            intersection is at least half their union. For ``output``, the share of images with
            equal numbers.
        distance: the largest distance of an image. For ``top class``, this is the Kullback-Leibler
            divergence of B's probabilities from A's, in nats; for ``output``, the relative L2
            distance. Null for other kinds, and if the distance is not finite.
        changed: the keys of the images for which the answers of A and B differ.
        images: the number of images.
    """

    kind: AnswerKind
    share: Share
    distance: Distance | None = None
    changed: tuple[str, ...] = ()
    images: Whole = 1

    @property
    def text(self) -> str:
        if self.kind == "output":
            apart = "far" if self.distance is None else share_text(self.distance)
            return f"the output is {apart} off" if self.changed else "same output"
        if self.kind != "top class":  # rounded down: only equal answers agree to 100 %
            return f"{self.kind} agree to {math.floor(round(1e4 * self.share, 6)) / 100:g} %"
        if self.changed and self.images > 1:
            return f"{len(self.changed)} of {self.images} top classes change"
        text = "same top classes" if self.images > 1 else "same top class"
        divergence = "" if self.distance is None else f", KL {self.distance:.1g}"
        return f"{'top class changes' if self.changed else text}{divergence}"


def sum_up(answers: Mapping[str, Answer]) -> Answer | None:
    if len(kinds := {each.kind for each in answers.values()}) != 1:
        return None
    distances = [each.distance for each in answers.values() if each.distance is not None]
    share = sum(each.share for each in answers.values()) / len(answers)
    farthest = max(distances) if len(distances) == len(answers) else None
    changed = tuple(key for key, each in answers.items() if each.share < 1)
    return Answer(kinds.pop(), share, farthest, changed, len(answers))


def share_text(value: float) -> str:
    if not 1e-4 <= value < 10:
        return f"{value:.2g}"
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"
