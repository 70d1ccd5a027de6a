"""The checks of requests: they are the same on every way into a run, and are made once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hookcli.config import (
    AblationConfig,
    CompareConfig,
    ImageRequest,
    InspectConfig,
    ModelRequest,
    RunRequest,
    VariantRequest,
)
from hookcli.errors import NoImageError, RequestError
from hookcli.plan.prepare import plan_run, prepare_ablation, prepare_comparison, prepare_run


class Side(int):
    asked = 0

    def __lt__(self, least):
        self.asked += 1
        return int(self) < least


def to_run(size):
    return RunRequest(ModelRequest("resnet18", size=size), ImageRequest(("no.png",)))


def to_variant(size):
    return CompareConfig(to_run(64), VariantRequest("B", to_run(size)))


WAYS = {
    "inspect": lambda size: prepare_run(InspectConfig(to_run(size))),
    "dry run": lambda size: plan_run(InspectConfig(to_run(size))),
    "ablate": lambda size: prepare_ablation(AblationConfig(to_run(size))),
    "compare": lambda size: prepare_comparison(replace(to_variant(64), run=to_run(size))),
    "B of compare": lambda size: prepare_comparison(to_variant(size)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_way_into_a_run_checks_each_value_of_its_request_once(way):
    side = Side(64)
    with pytest.raises(NoImageError):
        way(side)
    assert side.asked == 1
    with pytest.raises(RequestError, match=r"`.*size` must be at least 1, not 0"):
        way(0)
