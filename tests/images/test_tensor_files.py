"""Tensor files instead of pictures: the exact input of a bug report, used as it is."""

from __future__ import annotations

import hashlib
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.numpy import save_file

from hookcli.config import ModelRequest
from hookcli.images.read import read_images
from hookcli.networks.load import build_skeleton
from tests.networks.test_load import RunsCode

RANDOM = ("--weights", "random", "--device", "cpu", "--grids", "none")


def values(*shape, seed=0, dtype=np.float32):
    """Numbers that no picture has: negative ones, and ones above 1."""
    return (np.random.default_rng(seed).normal(size=shape) * 3).astype(dtype)


@pytest.fixture
def inspect(run):
    def command(*words, model="resnet18"):
        code, out, err = run("inspect", model, *words, *RANDOM, "--format", "json")
        assert code == 0, err
        return json.loads(out)

    return command


@pytest.fixture(scope="module")
def conv1():
    """The first convolution of the resnet18 of seed 0, called by torch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torchvision.models.resnet18(weights=None)

    def call(array):
        with torch.inference_mode():
            return model.conv1(torch.tensor(array.astype(np.float32)).unsqueeze(0))

    return call


def assert_figures(layer, expected):
    for name, value in (("mean", expected.mean()), ("std", expected.std(correction=0))):
        assert layer[name] == pytest.approx(float(value), abs=1e-5 * float(expected.std()))
    for name, value in (("min", expected.min()), ("max", expected.max())):
        assert layer[name] == pytest.approx(float(value), rel=1e-5)


def read(name):
    sources, skipped = read_images([name])
    assert skipped == []
    return [(source.name, source.key, source.read().pixels) for source in sources]


def reason(name):
    sources, (skipped,) = read_images([name])
    assert sources == []
    return skipped.reason


def test_the_tensors_of_a_file_come_in_the_order_of_their_names():
    """In 24 names the order in which safetensors returns them is not that of their numbers."""
    names = [f"image{number}" for number in range(24)]
    save_file({name: values(3, 2, 2) for name in reversed(names)}, "many.safetensors")
    found = [name for name, _, _ in read("many.safetensors")]
    assert found == [f"many.safetensors:{name}" for name in names]


@pytest.mark.parametrize(
    ("name", "dtype", "order"),
    [("x.npy", ">f4", "C"), ("x.npy", "<f2", "F"), ("x.safetensors", "<f4", "C")],
)
def test_a_tensor_goes_into_the_network_as_it_is(inspect, conv1, name, dtype, order):
    array = np.asarray(values(3, 37, 50), dtype=dtype, order=order)
    if name == "x.npy":
        np.save(name, array)
    else:
        save_file({"pixels": array}, name)
    document = inspect(name, "--layers", "conv1")
    (layer,), (image,) = document["layers"], document["images"]
    assert layer["shape"] == [1, 64, 19, 25]  # neither resized nor cropped
    assert_figures(layer, conv1(array))
    assert (image["key"], image["width"], image["height"]) == ("x", 50, 37)
    assert image["pixels_shape"] == [1, 3, 37, 50]
    assert image["sha256"] == hashlib.sha256(Path(name).read_bytes()).hexdigest()


def test_size_mean_and_std_leave_a_tensor_alone(inspect, conv1):
    np.save("x.npy", values(3, 32, 32))
    words = ("--size", "64", "--mean", "0.5,0.5,0.5", "--std", "0.1,0.1,0.1")
    document = inspect("x.npy", "--layers", "conv1", *words)
    assert_figures(document["layers"][0], conv1(values(3, 32, 32)))


def test_every_row_of_a_batch_is_an_image(inspect, conv1):
    array = values(3, 3, 32, 32) * np.array([1, 10, 100], np.float32).reshape(3, 1, 1, 1)
    np.save("x.npy", array)
    document = inspect("x.npy", "--layers", "conv1")
    assert [(image["file"], image["key"]) for image in document["images"]] == [
        ("x.npy[0]", "x_0"),
        ("x.npy[1]", "x_1"),
        ("x.npy[2]", "x_2"),
    ]
    (together,) = document["layers"]
    assert_figures(together, torch.cat([conv1(row) for row in array]))
    assert together["images"] == 3


def test_several_tensors_of_a_file_are_distinguished_by_their_names():
    arrays = {"a": values(3, 4, 5), "b.c": values(2, 3, 4, 5, seed=1)}
    save_file(arrays, "x.safetensors")
    found = {file: (key, pixels) for file, key, pixels in read("x.safetensors")}
    assert {file: key for file, (key, _) in found.items()} == {
        "x.safetensors:a": "x_a",
        "x.safetensors:b.c[0]": "x_b.c_0",
        "x.safetensors:b.c[1]": "x_b.c_1",
    }
    assert np.array_equal(found["x.safetensors:a"][1], arrays["a"])
    assert np.array_equal(found["x.safetensors:b.c[1]"][1], arrays["b.c"][1])


@pytest.mark.parametrize(
    ("model", "layer", "side", "shape"),
    [
        ("mc3_18", "(model)", 16, [1, 3, 16, 16, 16]),
    ],
)
def test_a_clip_or_a_pair_is_made_of_the_same_tensor(inspect, model, layer, side, shape):
    array = values(3, side, side)
    np.save("x.npy", array)
    words = ("--layers", layer, "--at", "input")
    seen = inspect("x.npy", *words, model=model)["layers"][0]
    assert seen["shape"] == shape
    assert seen["mean"] == pytest.approx(float(array.mean(dtype=np.float64)), abs=1e-6)


def test_a_tensor_is_no_second_picture(run):
    np.save("x.npy", values(3, 128, 128))
    Image.new("RGB", (128, 128)).save("b.png")
    code, _, err = run("inspect", "raft_small", "b.png", "--pair", "x.npy", *RANDOM)
    assert (code, err) == (
        3,
        (
            "error: the second image cannot be used: "
            "'x.npy' holds pixels, but a pair needs two pictures\n"
        ),
    )


def test_a_tensor_that_the_network_cannot_take_ends_with_4_and_its_shape(run):
    np.save("x.npy", values(3, 32, 32))
    code, _, err = run("inspect", "alexnet", "x.npy", *RANDOM)
    assert code == 4
    assert err.splitlines()[-1].startswith("hint: it was given input 1x256x1x1")


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.zeros((3, 4, 5), np.complex64), "holds complex64, and pixels are numbers"),
        (np.float32(1), "holds a scalar tensor, not (C, H, W) or (N, C, H, W)"),
        (values(4, 5), "holds a 4x5 tensor, not (C, H, W) or (N, C, H, W)"),
        (values(3, 0, 5), "holds a 3x0x5 tensor, not (C, H, W) or (N, C, H, W)"),
        (np.array([["a"]]), "holds <U1, and pixels are numbers"),
    ],
    ids=lambda value: str(getattr(value, "shape", ""))[:20],
)
def test_an_array_that_is_not_pixels_is_skipped_with_what_it_holds(array, why):
    np.save("x.npy", array)
    assert reason("x.npy") == why


def test_a_pickled_array_is_skipped_and_its_code_is_not_run():
    np.save("x.npy", np.array([RunsCode()], dtype=object), allow_pickle=True)
    assert reason("x.npy") == "is not a .npy file of numbers"
    assert not Path("the code was run").exists()


def test_an_archive_named_npy_is_skipped():
    np.savez("x.npz", values(3, 4, 5))
    data = Path("x.npz").read_bytes()
    for part in (data, data[:50]):
        Path("x.npy").write_bytes(part)
        assert reason("x.npy") == "is not a .npy file of numbers"


@pytest.mark.parametrize("begin", [b"{'descr': (", b"\xff{"])
def test_a_header_that_is_not_numpys_is_skipped(begin):
    np.save("x.npy", values(3, 4, 5))
    data = bytearray(Path("x.npy").read_bytes())
    data[10:128] = begin.ljust(118)
    Path("x.npy").write_bytes(data)
    assert reason("x.npy") == "is not a .npy file of numbers"


@pytest.mark.parametrize("keep", [3, 200])
def test_a_file_that_is_cut_short_is_skipped(keep):
    np.save("x.npy", values(3, 4, 5))
    save_file({"a": values(3, 4, 5)}, "x.safetensors")
    for name in ("x.npy", "x.safetensors"):
        data = Path(name).read_bytes()
        Path(name).write_bytes(data[:keep])
    assert reason("x.npy") == "is not a .npy file of numbers"
    assert reason("x.safetensors").startswith("is not a safetensors file that numpy can hold: ")


def test_a_header_that_promises_more_than_the_file_holds_costs_no_memory():
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 3, 1 << 10, 1 << 10)}
    with Path("x.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    assert reason("x.npy") == "is not a .npy file of numbers"


def test_a_safetensors_file_without_tensors_is_skipped_with_a_reason(run):
    save_file({}, "x.safetensors")
    code, out, err = run("inspect", "resnet18", "x.safetensors", *RANDOM)
    assert (code, out) == (3, "")
    assert err.startswith("error: no image can be used: 'x.safetensors' holds no tensors\n")


def test_pixels_are_shown_from_their_least_to_their_greatest_finite_value():
    ramp = torch.tensor([0.0] * 16 + [0.5] * 16 + [1.0] * 16).expand(1, 48, 48).clone()
    ramp[0, 0, 0] = math.nan
    loaded = build_skeleton(ModelRequest("resnet18"))
    shown = np.asarray(Image.open(io.BytesIO(loaded.show(ramp))).convert("L"), float)
    thirds = [part.mean() for part in np.array_split(shown, 3, axis=1)]
    assert thirds == pytest.approx([0, 128, 255], abs=3)
