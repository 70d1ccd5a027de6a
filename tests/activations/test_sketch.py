"""Sketches: their definition, element by element; torch against numpy; and how well they tell
differences.

The definition is written once more here, in Python's whole numbers, and everything is held to that.
"""

from __future__ import annotations

import functools
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import hookcli
from hookcli.activations.sketch import take_sketches
from hookcli.distance import sketch as sketches
from hookcli.distance.sketch import sketch_values
from tests.toy_models import SMALL_NET

OWN, ROW = (int.from_bytes(seed, "big") for seed in (b"hookcli1", b"hookcli2"))
PERIOD = 67 * 2039

PRECISION = math.sqrt(2 / 67) / 2
"""The standard deviation of an estimated norm, divided by the true norm n: 0.086.

With independent signs, the square of a sketch's norm has the mean n**2 and the variance 2 * (the
sum of the squares of the buckets' energies, minus the sum of the values' fourth powers). If the
energy is spread evenly, that is at most 2 * n**4 / 67. The relative standard deviation of a norm is
half that of its square, so two of three estimates are within 9 %, and 19 of 20 within 17 %. The
estimate is better if few values make up the difference, and worse if several values in one bucket
hold most of the energy: two equal ones give 0 or 1.41 times their norm. No usual layer produces
such a difference, but a change in one column of a tensor whose rows are a multiple of 67 wide does.

The values of a sketch are float32: differences below about 1e-7 of the norm are rounding errors.
"""


def splitmix64(seed, count):
    """https://prng.di.unimi.it/splitmix64.c"""
    mask = (1 << 64) - 1
    for k in range(1, count + 1):
        state = (seed + k * 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        yield state ^ (state >> 31)


@functools.cache
def draw(seed, count):
    return tuple(-1 if number >> 63 else 1 for number in splitmix64(seed, count))


def by_hand(values):
    """Return the sketch by its definition, value by value; exact for integers."""
    own, row = draw(OWN, PERIOD), draw(ROW, 1 << 13)
    buckets = [0] * 67
    for i, value in enumerate(values):
        buckets[i % 67] += own[i % PERIOD] * row[i // 67] * value
    return buckets


def as_text(signs):
    return "".join("+-"[int(sign < 0)] for sign in signs)


def norm(values):
    return float(np.linalg.norm(np.asarray(values, dtype=np.float64).ravel()))


# The definition


def test_the_streams_are_splitmix64_whose_first_numbers_are_published():
    """Of the seed 1234567, as listed at https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert list(splitmix64(1234567, 3)) == published


def test_the_signs_are_the_same_on_every_platform():
    own, row = sketches.make_own_signs(), sketches.make_row_signs(67)
    assert own.shape == (2039, 67)
    assert own.dtype == row.dtype == np.int8
    assert as_text(own[0]) == "+-++++-+++--+-++-+--+-+-++++-++--++-+---+-+---++++-+--++--++-+-+-++"
    assert as_text(own[-1, -20:]) == "-+---++++------+-+-+"
    assert as_text(row) == "+++--+--+---++-+-++-++-++----+--+++--++++--++++-++-++---+++++++-++-"


# Of 1, 2, …, 200: the first bucket holds 1 + 68 * own(67) * row(1) + 135 * … = 68, and so on.
OF_1_TO_200 = """
68 -207 210 213 -206 219 -222 75 76 -57 -234 213 -214 -81 246 83 -84 85 48 221 -46 -267 90
225 92 -41 94 -229 38 97 -36 233 234 -235 -236 237 312 29 -106 241 -242 243 -24 245 -336
-113 -248 115 -250 -251 -354 -15 -360 255 122 369 258 -375 -260 127 -384 -5 -390 -265 2 399
201
"""


@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_the_sketch_of_1_to_200_is_the_same_on_every_platform(kind):
    values = np.arange(1, 201).astype(kind)
    expected = [int(word) for word in OF_1_TO_200.split()]
    assert by_hand(range(1, 201)) == expected
    assert sketch_values(values.reshape(2, 4, 25)).tolist() == expected
    assert take_sketches(torch.from_numpy(values)[None]).tolist() == [expected]


def test_a_sketch_goes_on_after_the_signs_repeat():
    values = np.random.default_rng(0).integers(-9, 10, PERIOD + 1000)
    expected = by_hand(values.tolist())
    assert sketch_values(values).tolist() == expected
    assert take_sketches(torch.from_numpy(values).float()[None]).tolist() == [expected]
    assert take_sketches(torch.from_numpy(values)[None]).tolist() == [expected]


def test_a_sketch_has_268_bytes_little_endian_and_360_characters():
    sketch = np.arange(67, dtype=np.float32)
    data = sketches.to_bytes(sketch)
    assert (len(data), data[:12].hex()) == (268, "000000000000803f00000040")  # 0, 1, 2
    assert sketches.to_bytes(sketch.astype(">f4")) == data
    text = sketches.to_text(data)
    assert (len(text), text[:16]) == (360, "AAAAAAAAgD8AAABA")
    assert sketches.from_text(text).tolist() == sketches.from_bytes(data).tolist() == [*range(67)]


@pytest.mark.parametrize("text", ["AAAA", "ä" * 360, "*" * 360])
def test_text_that_is_not_a_sketch_is_refused(text):
    with pytest.raises(ValueError, match=r"sketch|ASCII"):
        sketches.from_text(text)


def test_values_that_are_not_finite_count_as_zeros():
    values = np.arange(1, 201, dtype=np.float32)
    holes = values.copy()
    holes[[3, 70, 150]] = np.nan, np.inf, -np.inf
    values[[3, 70, 150]] = 0
    expected = by_hand(values.astype(int).tolist())
    assert sketch_values(holes).tolist() == expected
    assert take_sketches(torch.from_numpy(holes)[None]).tolist() == [expected]
    turned = (
        torch.from_numpy(holes).view(1, 2, 10, 10).contiguous(memory_format=torch.channels_last)
    )
    assert take_sketches(turned).tolist() == [expected]


def test_a_sum_that_float32_cannot_hold_becomes_the_largest_it_can():
    signs = np.array(draw(OWN, 68)) * np.array([*[draw(ROW, 2)[0]] * 67, draw(ROW, 2)[1]])
    values = (3e38 * signs).astype(np.float32)  # the first bucket holds 6e38
    largest = float(np.finfo(np.float32).max)
    for sketch in (sketch_values(values), take_sketches(torch.from_numpy(values)[None])[0]):
        assert float(sketch[0]) == largest
        assert float(sketch[1]) == pytest.approx(3e38)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_no_values_give_zeros(shape):
    assert sketch_values(np.empty(shape)).tolist() == [0] * 67
    assert take_sketches(torch.empty(2, *shape)).tolist() == [[0] * 67] * 2


# Torch against numpy


def values_of(kind, shape):
    """(2, …) whole numbers, which every type holds, in that type."""
    generator = torch.Generator().manual_seed(0)
    whole = torch.randint(0, 5, (2, *shape), generator=generator)
    if kind == "quint8":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's: quantized tensors are to go
            return torch.quantize_per_tensor(whole.float(), 0.5, 3, torch.quint8)
    if kind.startswith("complex"):
        return torch.complex(whole.double(), -whole.flip(1).double()).to(getattr(torch, kind))
    return whole.to(getattr(torch, kind))


def numbers_of(row):
    """In the order of the axes, a complex value as two."""
    plain = row.dequantize() if row.is_quantized else row
    plain = torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain
    return [int(value) for value in plain.double().flatten().tolist()]


@pytest.mark.parametrize(
    "kind", ["float16", "bfloat16", "float64", "int64", "bool", "complex64", "quint8"]
)
def test_every_dtype_has_the_sketch_of_its_numbers(kind):
    values = values_of(kind, (5, 9, 8))
    values_of_rows = [by_hand(numbers_of(row)) for row in values]
    assert take_sketches(values).tolist() == values_of_rows
    if kind not in ("bfloat16", "quint8"):  # numpy does not have these
        assert sketch_values(values[0].numpy()).tolist() == values_of_rows[0]


def lay_out(values, axes):
    """Return the same values with their memory in the order of ``axes``."""
    return values.permute(axes).contiguous().permute(np.argsort(axes).tolist())


@pytest.mark.parametrize(
    ("kind", "shape", "axes"),
    [
        ("float32", (64, 20, 21), (0, 2, 3, 1)),  # channels last
        ("float32", (14, 14, 30), (0, 3, 1, 2)),  # named channels last, lies channels first
        ("int64", (9, 8, 7), (0, 3, 2, 1)),  # turned as no memory format turns
        ("complex64", (9, 8, 7), (1, 0, 2, 3)),  # rows that lie among each other
        ("float32", (128, 40, 41), (0, 2, 3, 1)),  # more than one piece, the signs repeat
    ],
)
def test_the_layout_in_memory_does_not_matter(kind, shape, axes):
    plain = values_of(kind, shape)
    values = lay_out(plain, axes)
    assert values.stride() != plain.stride() or 1 in shape
    rows = [plain[0], plain[1]]
    expected = [by_hand(numbers_of(row)) for row in rows]
    assert take_sketches(values).tolist() == expected


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_gpu_gives_the_same_without_waiting(layout):
    values = torch.randn(4, 64, 56, 56).contiguous(memory_format=layout)
    values[0, 0, 0, 0] = torch.nan
    device = values.cuda()
    take_sketches(device)  # copies the signs to the GPU, once for each size
    torch.cuda.set_sync_debug_mode("error")
    try:
        first, second = take_sketches(device), take_sketches(device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(first, second)
    for sketch, row in zip(first.cpu().numpy(), values.numpy(), strict=True):
        assert norm(sketch - sketch_values(row)) < 1e-6 * norm(np.nan_to_num(row))


# How well differences are told


def errors_of(make, count=60):
    """Return the relative errors of estimated norms."""
    rng = np.random.default_rng(1)
    found = []
    for index in range(count):
        difference = make(rng, index)
        found.append(norm(sketch_values(difference)) / norm(difference) - 1)
    return np.array(found)


def only(shape, index, values=1.0):
    difference = np.zeros(shape, np.float32)
    difference[index] = values
    return difference


NCHW, NHWC, NLC = (64, 56, 56), (56, 56, 96), (197, 768)
DIFFERENCES = {
    "white noise": lambda rng, i: rng.normal(size=50_000),
    "a constant shift of any length": lambda rng, i: np.ones(rng.integers(5_000, 900_000)),
    "one channel shifted": lambda rng, i: only(NCHW, i),
    "one column of all channels": lambda rng, i: only(NCHW, np.s_[:, :, i % 56]),
    "one channel that lies last": lambda rng, i: only(NHWC, np.s_[..., i]),
    "one token": lambda rng, i: only(NLC, i),
    "few values": lambda rng, i: only(200_000, rng.integers(0, 200_000, 40), rng.normal(size=40)),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_estimates_are_within_the_stated_precision(name):
    """68 in 100 within one standard deviation and 95 within two are expected; 60 tries tell
    less.
    """
    errors = errors_of(DIFFERENCES[name])
    assert np.mean(abs(errors) < PRECISION) > 0.45
    assert np.mean(abs(errors) < 2 * PRECISION) > 0.85
    assert np.sqrt(np.mean(errors**2)) < 1.35 * PRECISION
    assert abs(np.mean(errors)) < 0.8 * PRECISION


# In a run

PHOTOS = [Path(__file__).parents[2] / "sample_images" / f"{name}.png" for name in ("cat", "coffee")]
SMALL = ("--weights", "random", "--size", "64", "--device", "cpu", "--grids", "none")
SKETCHED = ("--sketch", "--save", "tensors", "-o", "out")


def rows_of(folder):
    parts = sorted(Path(folder, "records.parquet").glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def test_every_record_has_the_sketch_of_its_tensor(run):
    words = ("--layers", "conv[1:4],fc,layer1.0", "--at", "both", "--batch-size", "4")
    ended = run("inspect", "resnet18", *PHOTOS * 3, *SMALL, *SKETCHED, *words)
    assert ended.code == 0
    saved = hookcli.load_run("out")
    rows = rows_of("out")
    assert len(rows) == 2 * 6 * 6
    for row in rows:
        values = saved.tensor(row["call_id"], row["image"])
        sketch = np.frombuffer(row["sketch"], "<f4")
        assert norm(sketch - sketch_values(values)) <= 1e-6 * norm(values)
    last = [np.frombuffer(row["sketch"], "<f4") for row in rows if row["call_id"] == "fc"]
    assert (
        norm(last[2] - last[0]) < 1e-5 * norm(last[0]) < norm(last[1] - last[0])
    )  # cat, coffee, cat


@pytest.mark.parametrize(
    ("images", "option", "kept"),
    [
        (33, [], False),
        (33, ["--sketch"], True),
        (1, ["--no-sketch"], False),
    ],
)
def test_up_to_32_images_keep_sketches_unless_an_option_decides(run, images, option, kept):
    names = [f"{number:02d}.png" for number in range(images)]
    for name in names:
        Image.new("RGB", (8, 8), "red").save(name)
    Path("net.py").write_text(SMALL_NET)
    ended = run("inspect", "net.py:Net", *names, *option, "--grids", "none", "-o", "out")
    assert (", sketches" in ended.err.splitlines()[0]) == kept
    sketches = {row["sketch"] for row in rows_of("out")}
    assert (None not in sketches) == kept == (sketches != {None})
    command = json.loads(Path("out/manifest.json").read_bytes())["command"]
    assert [word for word in command if "sketch" in word] == option
