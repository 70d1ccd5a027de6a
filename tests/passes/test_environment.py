"""The facts in a manifest that a run depends on, besides its model and its images."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from hookcli.config import ModelRequest
from hookcli.networks.load import LoadedModel
from hookcli.networks.own_code import OwnCode
from hookcli.passes.eager import EagerRunner
from hookcli.records.runs import ModelInfo
from tests.toy_models import pointwise

CAT, COFFEE = (
    str(Path(__file__).parents[2] / "sample_images" / f"{name}.png") for name in ("cat", "coffee")
)


def loaded(module, device="cpu"):
    source = OwnCode("mine", lambda: module)
    info = ModelInfo("mine", source.word, "none", trained=False, device=device, dtype="float32")
    prepare = source.prepare(ModelRequest("mine"), module)
    return LoadedModel(info, prepare, module=module, source=source)


def versions(module=None):
    return EagerRunner.of(loaded(module or pointwise([1.0])), ()).versions()


def test_the_versions_are_those_of_the_packages_that_are_imported():
    import numpy
    import PIL
    import torchvision

    import hookcli

    found = versions()
    names = ("hookcli", "torch", "torchvision", "pillow", "numpy")
    assert [found[name].partition("+")[0] for name in names] == [
        module.__version__.partition("+")[0] for module in (hookcli, torch, torchvision, PIL, numpy)
    ]
    assert found["python"] == platform.python_version()


def test_the_processor_is_what_torch_uses_of_the_cpu():
    """As torch's own report on how it was built says it."""
    (expected,) = re.findall(r"CPU capability usage: (\S+)", torch.__config__.show())
    assert versions()["processor"] == expected


@pytest.mark.gpu
def test_on_a_gpu_the_processor_is_its_name_and_what_drives_it():
    found = EagerRunner.of(loaded(nn.ReLU(), device="cuda:0"), ()).versions()["processor"]
    name = torch.cuda.get_device_properties(0).name
    assert re.fullmatch(rf"{re.escape(name)}, CUDA \d+\.\d+, cuDNN \d+", found)


def test_timm_is_named_where_a_part_of_the_model_is_its():
    timm = pytest.importorskip("timm")
    from timm.layers import LayerNorm2d

    assert versions(nn.Sequential(nn.Linear(2, 2), LayerNorm2d(2)))["timm"] == timm.__version__
    assert versions()["timm"] == ""


def test_only_several_images_are_channels_last_and_the_manifest_records_it(run):
    plain = (
        "resnet18",
        "--weights",
        "random",
        "--device",
        "cpu",
        "--size",
        "32",
        "--grids",
        "none",
    )
    told = []
    for images in ([CAT], [CAT, COFFEE]):
        assert run("inspect", *plain, *images, "--sketch", "-o", "out", "--overwrite").code == 0
        manifest = json.loads(Path("out/manifest.json").read_bytes())
        golden = json.loads(run("golden", "out").out)
        assert golden["versions"] == manifest["versions"]
        told.append(golden["versions"]["memory_format"])
    assert told == ["contiguous", "channels last"]
