"""Make a run's scores: of classes, boxes or pixels, or of the likeness to an image or text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cosine_similarity

from hookcli.activations.feature_maps import as_maps
from hookcli.errors import NoImageError, RequestError
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.observe import reading
from hookcli.images.prepare import FirstImage
from hookcli.networks.scores import Scorer, ScoreTensor, read_aim, require_gradient
from hookcli.networks.task import Aim
from hookcli.passes.features import find_feature_call
from hookcli.plan.images import find_images
from hookcli.records.images import Score

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.config import BackwardStyle, RunRequest
    from hookcli.images.fit import Fitter
    from hookcli.networks.load import LoadedModel
    from hookcli.passes.eager import EagerRunner
    from hookcli.records.calls import Call

_NOT_IN_NAMES = re.compile(r"[^a-z0-9.]+")  # so that files with different names stay different


@dataclass(frozen=True, slots=True)
class Scoring:
    style: BackwardStyle
    request: RunRequest
    loaded: LoadedModel
    runner: EagerRunner
    fitter: Fitter  # for the other images that the run's are compared with

    def make(self, *, has_weights: bool = True) -> dict[str, Scorer]:
        # By ``Call.target``, which is empty if there is only one. Without weights, the model is not
        # run, and the scorers are only named.
        made: dict[str, Scorer] = {}
        for text in self.style.aims:
            kind, colon, what = text.partition(":")
            if not colon or kind not in ("like", "text"):
                name, scorer = self._score_output(text)
            else:
                short = what if kind == "text" else what.rpartition("/")[2]
                name = f"{kind}:{_NOT_IN_NAMES.sub('-', short.lower()).strip('-.') or len(made)}"
                while name in made:
                    name += f"-{len(made)}"
                scorer = self._score_likeness(kind, what, has_weights=has_weights)
            made[name] = scorer
        return {name * (len(made) > 1): scorer for name, scorer in made.items()}

    def _score_output(self, text: str) -> tuple[str, Scorer]:
        loaded, style = self.loaded, self.style
        aim = read_aim(text, loaded.categories, several=True)
        name = aim.name if isinstance(aim, Aim) else "predicted" if aim is None else str(aim)
        kinds = ("probability", "logit") if style.score == "logit" else (style.score,)
        judged = (loaded.scorer(replace(style, score=k), name, needs_gradient=False) for k in kinds)
        return name, Scorer(loaded.scorer(style, name), (*judged,))

    def _score_likeness(self, kind: str, what: str, *, has_weights: bool) -> Scorer:
        """Score the cosine similarity of the image's features to an image's or a text's."""
        loaded, runner = self.loaded, self.runner.plain or self.runner
        option = f"`text={what!r}`" if kind == "text" else f"`target='like:{what}'`"
        if self.style.score != "logit":
            raise RequestError(f"{option} has a score of its own: `score`", "leave one of them out")
        if not has_weights:
            return Scorer(loaded.scorer(self.style, "0"))  # a plan scores nothing
        watching = replace(runner, layers=list_watchable(runner.module))
        found = find_feature_call(loaded, watching, ("input", "output"))
        if found is None:
            raise RequestError(f"{option}: it is not known which layer has the features")
        call, said = found[0], f'"{what}"' if kind == "text" else what
        size = runner.size_of(loaded.pixels_to_try())
        if kind == "like":
            wanted = self._embed_image(call, what, option)
        else:
            wanted = loaded.source.embed_text(self.request.model, what)

        def score(values: object, *, aim: object = None) -> ScoreTensor:  # noqa: ARG001
            assert isinstance(values, torch.Tensor)  # noqa: S101  of the call
            features = _pool(call, values, size)
            if features.shape != wanted.shape:
                counts = f"{len(features)} numbers of the image with {len(wanted)}"
                raise RequestError(f"{option}: this would compare {counts}")
            value = cosine_similarity(features, wanted.to(features), dim=0, eps=1e-300)
            return ScoreTensor(value, Score(f"similarity to {said}", float(value.detach())))

        return Scorer(lambda values, **aim: require_gradient(score(values, **aim)), (score,), call)

    def _embed_image(self, call: Call, file: str, option: str) -> Tensor:
        images = replace(self.request.images, names=(file,), pair=None, clip=False)
        sources = find_images(replace(self.request, images=images)).sources
        if len(sources) != 1:
            raise RequestError(f"{option} is one image, and there are {len(sources)}")
        if (pixels := FirstImage(self.fitter, sources)()) is None:
            raise NoImageError(f"{option}: the image cannot be prepared for the model")
        runner = self.runner.plain or self.runner
        pixels = runner.to_device(pixels)
        with runner.unchanged(), torch.no_grad(), reading(runner.module, call) as read:
            values: Any = read(runner.call(pixels))
            return _pool(call, values, runner.size_of(pixels)).clone()


def _pool(call: Call, values: Tensor, size: tuple[int, int]) -> Tensor:
    layout = call.layout_of(tuple(values.shape), size)
    if not layout.is_spatial:  # images may have other sizes than the first
        layout = call.layout_of(tuple(values.shape))
    if layout.is_spatial:
        return as_maps(values, layout)[0].double().flatten(1).mean(1)
    return values[0].double().flatten()
