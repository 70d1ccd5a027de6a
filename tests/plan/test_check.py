"""The checks of requests: they are the same on every way into a run, and are made once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hookcli.config import (
    AblationConfig,
    ClusterRequest,
    CompareConfig,
    GradientsConfig,
    ImageRequest,
    InspectConfig,
    MachineRequest,
    ModelRequest,
    RunRequest,
    VariantRequest,
)
from hookcli.errors import NoImageError, RequestError
from hookcli.plan import check
from hookcli.plan.prepare import plan_run, prepare_ablation, prepare_comparison, prepare_run
from hookcli.run.pipeline import inspect_images


class Side(int):
    asked = 0

    def __lt__(self, least):
        self.asked += 1
        return int(self) < least


def to_run(size):
    return RunRequest(ModelRequest("resnet18", size=size), ImageRequest(("no.png",)))


def to_variant(size):
    return CompareConfig(to_run(64), VariantRequest("B", to_run(size)))


def to_cluster_run(size):
    return InspectConfig(to_run(size), machine=MachineRequest(cluster=ClusterRequest("auto")))


WAYS = {
    "inspect": lambda size: prepare_run(InspectConfig(to_run(size))),
    "gradients": lambda size: prepare_run(GradientsConfig(to_run(size))),
    "dry run": lambda size: plan_run(InspectConfig(to_run(size))),
    "Python": lambda size: inspect_images(InspectConfig(to_run(size))),
    "ablate": lambda size: prepare_ablation(AblationConfig(to_run(size))),
    "compare": lambda size: prepare_comparison(replace(to_variant(64), run=to_run(size))),
    "cluster": lambda size: prepare_run(to_cluster_run(size)),
    "B of compare": lambda size: prepare_comparison(to_variant(size)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_way_into_a_run_checks_each_value_of_its_request_once(way, monkeypatch):
    monkeypatch.setattr(check, "find_spec", lambda name: name)  # Ray need not be installed
    side = Side(64)
    with pytest.raises(NoImageError):
        way(side)
    assert side.asked == 1
    with pytest.raises(RequestError, match=r"`.*size` must be at least 1, not 0"):
        way(0)
