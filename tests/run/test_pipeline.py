"""A run whose runner has no module: tensors that are known beforehand become its tables."""

from __future__ import annotations

import csv
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from hookcli.config import ModelRequest
from hookcli.errors import RequestError
from hookcli.images.fit import make_fitter
from hookcli.images.prepare import FirstImage
from hookcli.networks.description import ModelDescription
from hookcli.networks.presets import make_imagenet
from hookcli.networks.task import Preprocessing
from hookcli.networks.tasks import CLASSIFICATION
from hookcli.passes.runner import ForwardOutcome, Runner
from hookcli.plan.images import find_images
from hookcli.plan.prepared import PreparedModel, require_eager, settle_run
from hookcli.reading.load import load_run
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.runs import ModelInfo
from hookcli.run.pipeline import run as run_prepared
from tests.configs import inspect_config


class Doubled(Runner):
    layers = (LayerInfo("sum", "Sum"), LayerInfo("idle", "Idle"))

    def __init__(self):
        self.closed = 0

    def run(self, batch, observer):
        sums = batch.pixels.flatten(1).sum(1, keepdim=True)
        output = torch.cat([sums, 2 * sums], 1)
        observer(Call(self.layers[0]), output)
        return ForwardOutcome(output)

    def close(self):
        self.closed += 1


def prepare(**words):
    for name, brightness in (("a", 1), ("b", 2)):
        np.save(f"{name}.npy", np.full((3, 2, 2), brightness, np.float32))
    config = inspect_config(ModelRequest("doubled"), "a.npy", "b.npy", out="out", **words)
    info = ModelInfo("doubled", "classification", "none", trained=True, dtype="float32")
    loaded = ModelDescription(info, Preprocessing(CLASSIFICATION, make_imagenet(), (2, 2)))
    fitter, sources = make_fitter(config.run.images, loaded), find_images(config.run).sources
    first = FirstImage(fitter, sources)
    model = PreparedModel(config.run, loaded, Doubled(), sources, [], fitter, first)
    return config, model


def test_a_run_needs_no_module():
    config, model = prepare()
    result = run_prepared(settle_run(config, model))
    with Path("out/layers.csv").open() as file:
        rows = [(row["call_id"], row["min"], row["max"]) for row in csv.DictReader(file)]
    assert rows == [("sum", "12.0", "48.0")]
    uncalled = [(each.layer.label, each.reason) for each in result.uncalled]
    assert uncalled == [("idle", "the model did not call it for this input")]
    assert [image.predictions[0].index for image in result.images] == [1, 1]
    assert load_run("out").manifest["versions"]["torch"] == version("torch")
    assert model.runner.closed == 1


def test_what_needs_modules_is_refused_in_one_sentence():
    config, model = prepare()
    with pytest.raises(RequestError) as refused:
        settle_run(replace(config, save_weights="weights.pt"), model)
    sentence = "`save_weights` needs the modules of a model, and doubled runs without them"
    assert refused.value.message == sentence
    config, model = prepare(edits=("sum:zero",))
    with pytest.raises(RequestError, match=r"^`edits` needs the modules of a model"):
        settle_run(config, model)
    with pytest.raises(RequestError, match=r"^ablate needs the modules of a model"):
        require_eager(model, "ablate")
    assert not Path("out").exists()
