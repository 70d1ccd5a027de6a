"""Test whether a class activation map shows what the score depends on, by blurring its places."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from hookcli.hooks.observe import reading
from hookcli.networks.modules import find_modules
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.foreign import ask
from hookcli.passes.call import row_of
from hookcli.passes.runner import Batch
from hookcli.records.pictures import CAM_STEPS, RANDOM_MAPS, CamTest, first_half

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from torch import nn

    from hookcli.networks.scores import Scorer
    from hookcli.passes.eager import EagerRunner

_SEED = 1810  # a model of random weights may have drawn its own with 0
_SIGMA = 20  # the blur's standard deviation is the shorter side divided by this


@dataclass(frozen=True, slots=True)
class Judge:
    """Scores pictures that are partly blurred."""

    runner: EagerRunner
    scorer: Scorer
    pixels: Tensor  # (1, …, H, W)
    blurred: Tensor
    ends: tuple[float, ...] = ()  # the scores of both

    @classmethod
    def of(cls, runner: EagerRunner, scorer: Scorer, pixels: Tensor) -> Judge:
        judge = cls(runner, scorer, pixels, blur(pixels))
        return replace(judge, ends=(*judge._score([pixels, judge.blurred]),))

    def test(self, cam: Tensor, randomised: Tensor | None) -> CamTest:
        """Test a map (h, w), beside random maps and the map (h, w) of a randomised model.

        Deletion and insertion: Petsiuk et al. 2018, https://arxiv.org/abs/1806.07421, with a blur
        in place of both grey and noise, for ten shares of the places.
        """
        generator = torch.Generator().manual_seed(0)
        noise = [torch.rand(cam.shape, generator=generator) for _ in range(RANDOM_MAPS)]
        deleted = self._curve(cam)
        curves = [self._curve(each) for each in noise]
        # deletion for the negative of a map is its insertion backwards
        negatives = [self._curve(each, inserts=True)[::-1] for each in noise]
        return CamTest(
            deletion=deleted,
            insertion=self._curve(cam, inserts=True),
            random=tuple(sum(values) / len(values) for values in zip(*curves, strict=True)),
            chance=min(map(first_half, (*curves, *negatives))),
            randomised=() if randomised is None else self._curve(randomised),
        )

    def _curve(self, values: Tensor, *, inserts: bool = False) -> tuple[float, ...]:
        """Return the scores after 0, 10, … 100 % of the places, the hottest first."""
        size = (self.pixels.shape[-2], self.pixels.shape[-1])
        places = interpolate(values[None, None].float(), size, mode="bilinear", align_corners=False)
        order = places.flatten().argsort(descending=True, stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order))
        rank = rank.reshape(size).to(self.pixels.device)
        first, second = self.pixels, self.blurred
        if inserts:
            first, second = second, first
        shares = (round(step * len(order) / CAM_STEPS) for step in range(1, CAM_STEPS))
        between = self._score([torch.where(rank < share, second, first) for share in shares])
        start, end = reversed(self.ends) if inserts else self.ends
        return start, *between, end

    def _score(self, waiting: list[Tensor]) -> Iterator[float]:
        for part in [[each] for each in waiting] if self.runner.alone else [waiting]:
            batch = Batch([""] * len(part), torch.cat(part))
            with reading(self.runner.module, self.scorer.call) as read:
                values = read(replace(self.runner, layers=()).run(batch, lambda *_: None).output)
            yield from (self.scorer.judge(row_of(values, row)) for row in range(len(part)))


def blur(pixels: Tensor) -> Tensor:
    """Blur pictures (…, C, H, W) by a Gaussian as wide as a twentieth of the shorter side."""
    sigma = min(pixels.shape[-2:]) / _SIGMA
    reach = min(int(3 * sigma), min(pixels.shape[-2:]) - 1)  # reflected at the edge
    planes = pixels.flatten(0, -3).unsqueeze(1)  # a clip has an axis more than the blur takes
    gaussian_blur = torchvision.transforms.functional.gaussian_blur
    blurred: Tensor = gaussian_blur(planes, [2 * reach + 1] * 2, [sigma] * 2)
    return blurred.reshape(pixels.shape)


def randomise_top(model: nn.Module, paths: Collection[str]) -> nn.Module:
    """Copy a model, and draw the weights of the first module of ``paths`` and all later ones again.

    Adebayo et al. 2018, https://arxiv.org/abs/1810.03292: a map that stays as it was does not
    depend on what the model has learned.
    """
    # Pruned and normalised weights are computed, and torch copies no tensor with a history.
    values = (each for module in model.modules() for each in vars(module).values())
    computed = (each for each in values if isinstance(each, Tensor) and not each.is_leaf)
    made = copy.deepcopy(model, {id(each): each.detach().clone() for each in computed})
    modules = find_modules(made)
    top = itertools.dropwhile(lambda each: each not in paths, modules)  # in the order of definition
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        for each in top:
            if callable(reset := ask(modules[each], "reset_parameters")):
                reset()
            for name, value in vars(modules[each]).items():  # as drawn, and before it is computed
                if (original := modules[each]._parameters.get(f"{name}_orig")) is not None:
                    original.data.copy_(value)
    return made
