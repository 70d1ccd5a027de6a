"""Saved activations: the copy inside the hook, shards, reading them back, and exporting them."""

from __future__ import annotations

import csv
import itertools
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool1d, adaptive_avg_pool2d

from hookcli.activations.pooling import saved_shape, take_activation
from hookcli.config import SaveStyle
from hookcli.errors import OutputError, RequestError
from hookcli.reading.load import choose_calls, load_run
from hookcli.records.layouts import Layout
from hookcli.store.locations.directory import Directory
from hookcli.store.tensors import write_index, write_shard
from hookcli.verbs.export import export
from tests.conftest import every_pair
from tests.toy_models import outputs, seeded_squeezed
from tests.toy_runs import read_from, write_into

MEAN = SaveStyle("mean")
NCHW = Layout("NCHW", 1, 2, 2)
TWO_MAPS = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 8.0]]]])  # (1, 2, 2, 2)

# A shape of each layout, of one image
SHAPES = {
    "NCHW": ((1, 5, 4, 6), Layout("NCHW", 1, 4, 6)),
    "NCHW of one pixel": ((1, 5, 1, 1), Layout("NCHW", 1, 1, 1)),
    "NHWC": ((1, 4, 6, 5), Layout("NHWC", 3, 4, 6)),
    "NHWC without a picture": ((1, 4, 6, 5), Layout("NHWC", 3)),
    "NLC": ((1, 24, 5), Layout("NLC", 2, 4, 6)),
    "NLC with a class token": ((1, 25, 5), Layout("NLC", 2, 4, 6, 1)),
    "NLC with tokens on both sides": ((1, 28, 5), Layout("NLC", 2, 4, 6, 1)),
    "NLC without a picture": ((1, 24, 5), Layout("NLC", 2)),
    "NCL": ((1, 5, 24), Layout("NCL", 1, 1, 24)),
    "NC": ((1, 5), Layout("NC", 1)),
    "NCDHW": ((1, 5, 3, 4, 6), Layout("NCDHW", 1, 4, 6)),
    "NDHWC": ((1, 3, 4, 6, 5), Layout("NDHWC", 4, 4, 6)),
    "boxes": ((7, 5, 3, 3), Layout("NCHW", 1)),
    "unknown": ((1, 3, 7, 2), Layout()),
    "empty": ((1, 0, 4), Layout()),
}


def counting(*shape: int) -> Tensor:
    """0, 1, 2, … in another order: no two values alike, so no two axes can be mixed up unseen."""
    count = int(np.prod(shape))
    return torch.from_numpy(np.random.default_rng(0).permutation(count)).float().reshape(shape)


# --- what is taken of an activation


def test_writing_over_the_activation_does_not_change_what_was_kept():
    pools = ["none", "mean", "max", "1", "3"]
    for name, pool, channels in every_pair(SHAPES, pools, [None, (0, 1, 2, 3, 4)]):
        shape, layout = SHAPES[name]
        activation = counting(*shape)
        kept = take_activation(activation, layout, SaveStyle(pool, channels=channels))
        before = kept.clone()
        activation.fill_(-1)
        assert torch.equal(kept, before), (name, pool, channels)
        assert kept.is_contiguous(), (name, pool, channels)


def pool_by_hand(values, layout, pool):
    """What is kept of an array (N, …): the pool of each channel, if the layout has rows."""
    if pool == "none" or not layout.height:
        return values
    maps = np.moveaxis(values, layout.channel_axis, 1)
    if layout.name == "NLC":
        tokens = maps[:, :, layout.prefix : layout.prefix + layout.height * layout.width]
        maps = tokens.reshape(*maps.shape[:2], layout.height, layout.width)
    if pool in ("mean", "max"):
        return getattr(maps, pool)(tuple(range(2, maps.ndim)))
    if layout.name == "NCL":
        return adaptive_avg_pool1d(torch.from_numpy(maps), int(pool)).numpy()
    each = torch.from_numpy(maps).reshape(-1, 1, layout.height, layout.width)
    return adaptive_avg_pool2d(each, int(pool)).numpy().reshape(*maps.shape[:-2], int(pool), -1)


def test_each_channel_is_pooled_over_its_places_in_every_layout():
    for name, pool in itertools.product(SHAPES, ("none", "mean", "max", "3", "7")):
        shape, layout = SHAPES[name]
        activation = counting(*shape)
        kept = take_activation(activation, layout, SaveStyle(pool))
        expected = pool_by_hand(activation.numpy(), layout, pool)
        np.testing.assert_allclose(kept, expected, rtol=1e-6, err_msg=f"{name} {pool}")
        if layout.channel_axis is not None and pool == "none":
            kept = take_activation(activation, layout, SaveStyle(channels=(4, 9, 0)))
            assert kept.tolist() == activation.numpy().take([4, 0], layout.channel_axis).tolist()


def test_a_nan_is_the_maximum_of_its_channel():
    activation = TWO_MAPS.clone()
    activation[0, 0, 0, 0] = torch.nan
    kept = take_activation(activation, NCHW, SaveStyle("max"))
    assert str(kept.tolist()) == "[[nan, 8.0]]"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_tensor_is_kept_in_the_dtype_asked_for(dtype):
    kept = take_activation(TWO_MAPS / 3, NCHW, SaveStyle(dtype=dtype))
    assert torch.equal(kept, (TWO_MAPS / 3).to(getattr(torch, dtype)))


def test_the_mean_of_integers_is_float32_and_their_maximum_an_integer():
    numbers = torch.tensor([[[[1, 2]]]])
    layout = Layout("NCHW", 1, 1, 2)
    assert take_activation(numbers, layout, MEAN).tolist() == [[1.5]]
    assert take_activation(numbers, layout, MEAN).dtype == torch.float32
    assert take_activation(numbers, layout, SaveStyle("max")).dtype == torch.int64
    kept = take_activation(torch.tensor([[2049]]), Layout("NC", 1), SaveStyle(dtype="float16"))
    assert kept.tolist() == [[2049]]  # which is no float16
    halves = torch.full((1, 1, 300, 300), 100.0, dtype=torch.float16)  # their sum is no float16
    assert take_activation(halves, Layout("NCHW", 1, 300, 300), MEAN).tolist() == [[100.0]]


def test_quantized_and_sparse_tensors_are_kept_as_the_numbers_they_represent():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.quantize_per_tensor(TWO_MAPS, 0.5, 10, torch.quint8)
    assert take_activation(quantized, NCHW, SaveStyle()).tolist() == TWO_MAPS.tolist()
    assert take_activation(quantized, NCHW, MEAN).tolist() == [[2.5, 2.0]]
    assert take_activation(TWO_MAPS.to_sparse(), NCHW, MEAN).tolist() == [[2.5, 2.0]]


def test_complex_tensors_are_kept_and_pooled_as_magnitudes():
    numbers = torch.tensor([[[[3 + 4j, 0]]]], dtype=torch.complex128).conj()
    layout = Layout("NCHW", 1, 1, 2)
    kept = take_activation(numbers, layout, SaveStyle())
    assert (kept.dtype, kept.tolist()) == (torch.complex64, [[[[3 - 4j, 0]]]])
    assert not kept.is_conj()  # whose bytes in memory are those of the other number
    assert take_activation(numbers, layout, MEAN).tolist() == [[2.5]]
    assert take_activation(numbers, layout, SaveStyle("max")).tolist() == [[5.0]]


def test_the_shape_is_known_without_a_tensor():
    pools = ["none", "mean", "max", "1", "3", "7"]
    for name, pool, channels in every_pair(SHAPES, pools, [None, (3, 1), (4, 5), (9,)]):
        shape, layout = SHAPES[name]
        style = SaveStyle(pool, channels=channels)
        said = saved_shape(shape, layout, style)
        for rows in (shape[0], 2):
            kept = take_activation(counting(rows, *shape[1:]), layout, style)
            assert (rows, *said[1:]) == kept.shape, (name, pool, channels)


# --- shards


def image(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor([values], dtype=dtype)


def read_shard(folder: Path, number: int = 0) -> dict[str, Tensor]:
    with safe_open(folder / f"tensors/shard-{number:06d}.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def test_other_shapes_and_dtypes_are_tensors_of_their_own_in_order_of_appearance(tmp_path):
    half = image(7, 8, dtype=torch.float16)
    pairs = [("a", image(1, 2)), ("b", image(3)), ("c", half), ("d", image(4, 5)), ("e", image(6))]
    write_shard(write_into(tmp_path), 0, {"conv": pairs})
    assert {name: tensor.tolist() for name, tensor in read_shard(tmp_path).items()} == {
        "conv": [[1, 2], [4, 5]],
        "conv@1": [[3], [6]],
        "conv@2": [[7, 8]],
    }


def test_a_module_named_like_another_ones_second_shape_keeps_its_name(tmp_path):
    kept = {
        "a": [("x", image(1)), ("y", image(2, 3)), ("z", image(6, 7, 8))],
        "a@1": [("x", image(4))],
        "__metadata__": [("x", image(5))],
    }
    write_index(
        write_into(tmp_path), read_from(tmp_path), [write_shard(write_into(tmp_path), 0, kept)]
    )
    assert {name: tensor.tolist() for name, tensor in read_shard(tmp_path).items()} == {
        "a": [[1]],
        "a@2": [[2, 3]],
        "a@3": [[6, 7, 8]],
        "a@1": [[4]],
        "__metadata__@1": [[5]],
    }
    calls = json.loads((tmp_path / "tensors/index.json").read_text())["calls"]
    assert {call: [part["tensor"] for part in parts] for call, parts in calls.items()} == {
        "a": ["a", "a@2", "a@3"],
        "a@1": ["a@1"],
        "__metadata__": ["__metadata__@1"],
    }


def test_the_same_tensors_give_the_same_bytes(tmp_path):
    """safetensors keeps metadata in a hash map: with several keys they would come in any order."""
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.float16)
    written = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        kept = {
            f"conv{i}": [(f"image{j}", torch.full((1, i + 1), j).to(dtypes[i % 4])) for j in (0, 1)]
            for i in range(20)
        }
        write_index(
            write_into(folder), read_from(folder), [write_shard(write_into(folder), 0, kept)]
        )
        written.append({path.name: path.read_bytes() for path in (folder / "tensors").iterdir()})
    assert written == written[:1] * 2
    assert sorted(written[0]) == ["index.json", "shard-000000.safetensors"]


def test_the_index_says_where_each_image_is(tmp_path):
    kept = {"b": [("x", image(1)), ("y", image(2))], "a": [("y", image(3))]}
    first = write_shard(write_into(tmp_path), 0, kept)
    later = {"b": [("z", image(4, 5, dtype=torch.bfloat16))]}
    second = write_shard(write_into(tmp_path), 1, later)
    name = write_index(write_into(tmp_path), read_from(tmp_path), [first, second])
    assert name == "tensors/index.json"
    in_first = {"shard": first, "dtype": "F32"}
    calls = {
        "b": [
            in_first | {"tensor": "b", "shape": [2, 1], "images": ["x", "y"]},
            {"shard": second, "tensor": "b", "shape": [1, 2], "dtype": "BF16", "images": ["z"]},
        ],
        "a": [in_first | {"tensor": "a", "shape": [1, 1], "images": ["y"]}],
    }
    assert json.loads((tmp_path / name).read_text()) == {"schema_version": 1, "calls": calls}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not a shard, but longer than eight bytes", "shard-000000"),
        (b"\xff" * 7 + b"\x7f", "its header has 9,223,"),  # for which no room is made
        (None, "shard-000000"),
    ],
)
def test_a_shard_that_cannot_be_read_is_named(tmp_path, content, said):
    name = write_shard(write_into(tmp_path), 0, {"a": [("x", image(1))]})
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(OutputError, match=said):
        write_index(write_into(tmp_path), Directory(tmp_path).read_part, [name])
    assert not (tmp_path / "tensors/index.json").exists()


# --- reading a run


def finished_run(shards, images, folder="run", **facts):
    """Write the folder of a finished run: shards, index and manifest."""
    home = Path(folder)
    names = [write_shard(write_into(home), number, kept) for number, kept in enumerate(shards)]
    files = (
        ["run.json", *names, write_index(write_into(home), read_from(home), names)]
        if names
        else ["run.json"]
    )
    named = [{"key": key, "file": f"photos/{key}.png", "sha256": ""} for key in images]
    model = {"name": "toy", "task": "own", "weights": "a.pt", "trained": True, "dtype": "float32"}
    manifest = {"hookcli": "0.1.0", "command": ["hookcli", "inspect"], "model": model}
    manifest |= {"versions": {}, "images": named, "files": files}  # type: ignore[dict-item]
    home.mkdir(exist_ok=True)
    (home / "run.json").write_text("{}")
    (home / "manifest.json").write_text(json.dumps(manifest | facts))
    return home


def three_images():
    shards = [
        {"conv": [("b", image(1, 2)), ("a", image(3, 4))], "fc": [("a", image(9))]},
        {"conv": [("c", image(5, 6))]},
    ]
    return finished_run(shards, ["a", "b", "c"])


def refusal(ask):
    with pytest.raises(RequestError) as caught:
        ask()
    return caught.value.message, caught.value.hint


def test_a_call_is_an_array_in_the_order_of_the_images():
    run = load_run(three_images())
    assert run.images == ("a", "b", "c")
    assert run.calls == tuple(run) == ("conv", "fc")
    assert run["conv"].tolist() == [[3, 4], [1, 2], [5, 6]]
    assert run["conv"].dtype == np.float32
    assert run.shape_of("conv") == (3, 2)
    assert run.images_of("fc") == ("a",)  # the others have no tensor of this call
    assert run["fc"].tolist() == [[9]]
    assert run.tensor("conv", "c").tolist() == [5, 6]


def test_a_dtype_that_numpy_has_stays():
    dtypes = ("float64", "float16", "complex64", "int64", "bool")
    parts = {name: image(0, 1, 1, dtype=getattr(torch, name)) for name in dtypes}
    kept = {name: [("x", part), ("y", part)] for name, part in parts.items()}
    kept["wider"] = [("x", image(1, 2, dtype=torch.float16)), ("y", image(0.1, 3))]
    run = load_run(finished_run([kept], ["x", "y"]))
    assert run["wider"].tolist() == [[1, 2], [np.float32(0.1), 3]]
    for name in dtypes:
        assert run[name].dtype == run.tensor(name, "y").dtype == np.dtype(name)
        assert run[name].tolist() == [[0, 1, 1], [0, 1, 1]]


def test_bfloat16_comes_as_float32_with_the_same_values():
    """All 65,536 of them, NaN and Inf too, between two others so that a wrong place would show."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16).reshape(2, 4, -1)
    before, after = image(1.5), image(2.5, 3.5, dtype=torch.float16)
    kept = {
        "before": [("x", before)],
        "every": [("x", every[:1]), ("y", every[1:])],
        "after": [("x", after)],
    }
    run = load_run(finished_run([kept], ["x", "y"]))
    assert run["every"].dtype == np.float32
    np.testing.assert_array_equal(run["every"], every.float().numpy())
    np.testing.assert_array_equal(run.tensor("every", "y"), every[1].float().numpy())
    assert run["before"].tolist() == [[1.5]]
    assert run["after"].tolist() == [[2.5, 3.5]]


def test_only_the_shards_that_hold_the_call_are_opened():
    home = three_images()
    (home / "tensors/shard-000001.safetensors").unlink()
    run = load_run(home)
    assert run["fc"].tolist() == [[9]]
    assert run.tensor("conv", "b").tolist() == [1, 2]
    message, hint = refusal(lambda: run["conv"])
    assert message.startswith("cannot read 'run/tensors/shard-000001.safetensors': ")
    assert hint == "run `hookcli.inspect` again"


def test_a_dtype_that_numpy_lacks_is_refused():
    part = image(1, 2).to(torch.float8_e4m3fn)
    run = load_run(finished_run([{"a": [("x", part)]}], ["x"]))
    expected = (
        "'a' was saved as F8_E4M3, which numpy cannot hold",
        "save with `tensor_dtype='float32'`",
    )
    assert refusal(lambda: run["a"]) == refusal(lambda: run.tensor("a", "x")) == expected


def test_images_of_different_shapes_are_refused_as_one_array_and_read_one_by_one():
    pairs = [("a", torch.zeros(1, 3, 4, 4)), ("b", torch.ones(1, 3, 5, 4))]
    run = load_run(finished_run([{"conv": pairs}], ["a", "b"]))
    assert refusal(lambda: run["conv"]) == (
        "the images' tensors of 'conv' differ in shape: a has 3x4x4, b has 3x5x4",
        "save with `pool='mean'`, or read one image: run.tensor('conv', 'a')",
    )
    assert run.tensor("conv", "b").shape == (3, 5, 4)


def test_a_call_that_was_not_saved_is_refused_with_names_like_it():
    run = load_run(three_images())
    assert refusal(lambda: run["convv"]) == (
        "no tensor of 'convv' was saved",
        "did you mean conv?",
    )
    assert refusal(lambda: run.images_of("xyz"))[1] == "there are: conv, fc"
    assert refusal(lambda: run[cast("str", 0)]) == (
        "no tensor of 0 was saved",
        "there are: conv, fc",
    )


def test_an_image_that_is_not_there_is_refused_with_names_like_it():
    kept = {"conv": [(f"cat-{number}", image(number)) for number in range(7)]}
    run = load_run(finished_run([kept], [f"cat-{number}" for number in range(7)]))
    assert refusal(lambda: run.tensor("conv", "cat6")) == (
        "no tensor of 'conv' was saved for an image 'cat6'",
        "did you mean cat-6, cat-5, cat-4?",
    )
    hint = refusal(lambda: run.tensor("conv", "zebra"))[1]
    assert hint == "there are: cat-0, cat-1, cat-2, cat-3, cat-4 and 2 more"


def test_call_ids_are_chosen_exactly_or_by_globs_in_the_runs_order():
    names = ("conv", "layer1.0.relu", "layer1.0.relu#1", "att[0]", "att[1]", "att[a,b]")
    run = load_run(finished_run([{name: [("x", image(1))] for name in names}], ["x"]))
    assert choose_calls(run, ["layer1.*", "conv"]) == names[:3]
    assert choose_calls(run, ["layer1.0.relu"]) == ("layer1.0.relu",)
    assert choose_calls(run, ["att[1]"]) == ("att[1]",)
    assert choose_calls(run, ["att[*", "*"]) == names
    assert choose_calls(run, ["conv,att[1]"]) == ("conv", "att[1]")
    assert choose_calls(run, ["att[a,b]"]) == ("att[a,b]",)
    for forms in (["conv", "layer2.*"], ["conv,layer2.*"]):
        message = refusal(lambda forms=forms: choose_calls(run, forms))[0]
        assert message == "no tensor of 'layer2.*' was saved"


def test_rows_of_layers_csv_have_numbers_and_none():
    home = three_images()
    names = ("order", "call_id", "shape", "mean", "std", "channels", "of_a_later_version")
    (home / "layers.csv").write_text(f"{','.join(names)}\n1,0,1x8x2x2,0.5,,8,7\n")
    (read,) = load_run(home).layers
    # the call id is the name of a module of nn.Sequential: text, not a number
    assert read == dict(zip(names, (1, "0", "1x8x2x2", 0.5, None, 8, "7"), strict=True))


def test_tables_that_are_not_there_or_damaged_are_named():
    home = three_images()
    listed = json.loads((home / "manifest.json").read_text())
    listed["files"].append("records.parquet/part-000000.parquet")
    (home / "manifest.json").write_text(json.dumps(listed))
    run = load_run(home)
    assert refusal(lambda: run.records)[0] == "the run in 'run' has no records.parquet"
    missing = "cannot read 'run/layers.csv': No such file or directory"
    assert refusal(lambda: run.layers)[0] == missing
    (home / "layers.csv").write_text("order,call_id\none,conv\n")
    assert refusal(lambda: run.layers)[0].startswith("cannot read 'run/layers.csv': ")
    (home / "records.parquet").mkdir()
    (home / "records.parquet/part-000000.parquet").write_bytes(b"nothing")
    assert refusal(lambda: run.records)[0].startswith("cannot read 'run/records.parquet': ")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    assert refusal(lambda: load_run("nowhere"))[0] == "there is no folder 'nowhere'"
    Path("photos").mkdir()
    assert refusal(lambda: load_run("photos"))[0] == "'photos' is not the folder of a run"
    (Path("photos") / "manifest.json").write_text('{"name": "an app"}')
    damaged = "'photos/manifest.json' is damaged: it lacks 'hookcli'"
    assert refusal(lambda: load_run("photos"))[0] == damaged


def test_a_run_without_tensors_still_has_its_images_and_tables():
    run = load_run(finished_run([], ["a"]))
    assert (run.images, run.calls) == (("a",), ())
    has = "run.layers, run.records and run.grid(CALL)"
    assert repr(run) == f"Run('run', 1 image, no tensors: {has})"
    hint = "run `hookcli.inspect` again, with `save='tensors'`"
    what = "the run in 'run' saved no tensors"
    assert refusal(lambda: choose_calls(run, ["*"])) == (what, hint)
    more = f"{hint}; the statistics are in run.rows or, if it was loaded, in {has}"
    assert refusal(lambda: run["conv"]) == (what, more)


@pytest.mark.parametrize(
    "index",
    [
        None,
        "",
        (
            '{"calls": {"a": [{"shard": "s", "tensor": "a", "shape": [2, 1], "dtype": "F32", '
            '"images": ["x"]}]}}'
        ),
    ],
)
def test_a_damaged_index_is_named(index):
    home = three_images()
    file = home / "tensors/index.json"
    file.unlink() if index is None else file.write_text(index)
    assert "'run/tensors/index.json'" in refusal(lambda: load_run(home))[0]


def test_an_index_of_other_images_than_the_manifests_is_refused():
    home = finished_run([{"conv": [("a", image(1)), ("z", image(2))]}], ["a"])
    assert refusal(lambda: load_run(home)["conv"])[0] == (
        "'run/tensors/index.json' is damaged: 'conv' has the image 'z', unknown to the manifest"
    )


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_shard_is_named(is_cut):
    home = three_images()
    shard = home / "tensors/shard-000000.safetensors"
    if is_cut:
        shard.write_bytes(shard.read_bytes()[:-3])
    else:
        write_shard(write_into(home), 0, {"conv": [("b", image(1)), ("a", image(3))]})
    message, _ = refusal(lambda: load_run(home)["conv"])
    assert message.startswith("cannot read 'run/tensors/shard-000000.safetensors': ")


def test_a_run_is_read_without_torch():
    home = three_images()
    code = (
        "import sys; from hookcli.reading.load import load_run\n"
        f"run = load_run({str(home)!r}); array = run['conv']\n"
        "print(array.tolist(), sorted({'torch', 'pyarrow', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[[3.0, 4.0], [1.0, 2.0], [5.0, 6.0]] []\n"


# --- handing on


LIST = ".hookcli-export.json"


def files_in(folder):
    """Return the files in a folder, without the hidden list of files that exports wrote."""
    return sorted(path.name for path in Path(folder).iterdir() if path.name != LIST)


def test_npy_gives_an_array_a_call_and_the_names_of_the_rows():
    export(three_images(), to="npy", out=Path("out"))
    assert np.load("out/conv.npy").tolist() == [[3, 4], [1, 2], [5, 6]]
    assert np.load("out/fc.npy").tolist() == [[9]]
    assert Path("out/images.csv").read_text() == (
        "row,image,file\n0,a,photos/a.png\n1,b,photos/b.png\n2,c,photos/c.png\n"
    )
    # fc gave one image alone
    assert Path("out/fc.images.csv").read_text() == "row,image,file\n0,a,photos/a.png\n"
    assert len(files_in("out")) == 4


def test_csv_gives_a_row_an_image_and_a_column_a_value():
    pairs = [("-a", image(0.1, 2, -3, 1e-10).reshape(1, 2, 2)), ("b", torch.ones(1, 2, 2))]
    export(finished_run([{"conv": pairs}], ["-a", "b"]), to="csv", out=Path("out"))
    assert Path("out/conv.csv").read_text() == (
        "image,0,1,2,3\n'-a,0.1,2.0,-3.0,1e-10\nb,1.0,1.0,1.0,1.0\n"
    )
    assert Path("out/images.csv").read_text() == (
        "row,image,file\n0,'-a,photos/-a.png\n1,b,photos/b.png\n"
    )


@pytest.mark.parametrize(
    ("values", "header"),
    [
        (torch.ones(1, 3), "image,0,2,7"),
        (torch.ones(1, 2), "image,0,1"),
    ],
)
def test_columns_are_named_by_the_channels_that_were_saved_where_each_has_one_value(values, header):
    home = finished_run([{"conv": [("a", values)]}], ["a"])
    write_index(
        write_into(home), read_from(home), ["tensors/shard-000000.safetensors"], {"conv": (0, 2, 7)}
    )
    export(home, to="csv", out=Path("out"))
    assert Path("out/conv.csv").read_text().splitlines()[0] == header


def test_a_call_too_wide_for_a_table_is_refused_before_anything_is_written():
    fits, wide = torch.zeros(1, 128, 128), torch.zeros(1, 16385)
    home = finished_run([{"fits": [("a", fits)], "wide": [("a", wide)]}], ["a"])
    assert refusal(lambda: export(home, to="csv", out=Path("out"))) == (
        "'wide' has 16,385 values per image, and a table at most 16,384 columns",
        "save with `pool='mean'`, or export `to='npy'`",
    )
    assert not Path("out").exists()
    export(home, to="csv", out=Path("out"), layers=["fits"])
    assert files_in("out") == ["fits.csv", "images.csv"]


def test_files_of_call_ids_are_safe_and_unique_whatever_the_case():
    names = ("Relu#1", "relu#1", "relu_1", "../up", "(model)", "images")
    home = finished_run([{name: [("a", image(1))] for name in names}], ["a"])
    export(home, to="npy", out=Path("out"))
    assert files_in("out") == [
        *("Relu_1.npy", "images-2.npy", "images.csv", "model.npy", "relu_1-2.npy"),
        *("relu_1-3.npy", "up.npy"),
    ]
    assert files_in(".") == ["out", "run"]


def test_files_that_are_there_are_protected():
    home, there = three_images(), "fc.npy"
    Path("out").mkdir()
    Path("out", there).write_text("mine")
    with pytest.raises(OutputError) as caught:
        export(home, to="npy", out=Path("out"))
    unknown = f"'out/{there}' was not written by `hookcli.export`"
    assert (caught.value.message, caught.value.exit_code) == (unknown, 5)
    with pytest.raises(OutputError) as caught:
        export(home, to="npy", out=Path("out"), overwrite=True)
    assert caught.value.message == unknown
    assert [path.name for path in Path("out").iterdir()] == [there]
    assert Path("out", there).read_text() == "mine"


def test_what_an_export_wrote_is_replaced_when_asked_for():
    home = three_images()
    export(home, to="npy", out=Path("out"))
    with pytest.raises(OutputError) as caught:
        export(home, to="npy", out=Path("out"))
    assert caught.value.message == "'out/conv.npy' already exists"
    assert caught.value.hint == "replace it with `overwrite`, or choose another `out`"
    Path("out/conv.npy").write_bytes(b"old")
    Path("out/notes.txt").write_text("mine")
    export(home, to="npy", out=Path("out"), overwrite=True)
    assert np.load("out/conv.npy").shape == (3, 2)
    assert Path("out/notes.txt").read_text() == "mine"
    assert json.loads(Path("out", LIST).read_bytes())["files"] == [
        "conv.npy",
        "fc.images.csv",
        "fc.npy",
        "images.csv",
    ]


def test_a_link_in_the_place_of_an_export_is_left_alone():
    home = three_images()
    export(home, to="npy", out=Path("out"))
    Path("mine.npy").write_text("mine")
    Path("out/conv.npy").unlink()
    Path("out/conv.npy").symlink_to(Path("mine.npy").resolve())
    with pytest.raises(OutputError, match="was not written by"):
        export(home, to="npy", out=Path("out"), overwrite=True)
    assert Path("mine.npy").read_text() == "mine"
    assert Path("out/conv.npy").is_symlink()


def test_nothing_is_written_into_a_run_folder():
    home = three_images()
    request = {"schema_version": 1, "hookcli": "1.0", "command": ["hookcli", "inspect"]}
    (home / "run.json").write_text(json.dumps(request))
    before = files_in(home)
    with pytest.raises(OutputError, match="'run' is a run's folder"):
        export(home, to="npy", out=home, overwrite=True)
    assert files_in(home) == before


def test_every_style_goes_from_the_hook_through_a_shard_into_an_array():
    """Two rows of every layout, pool and dtype, read back as what was taken."""
    dtypes = (None, "float16", "bfloat16")
    for number, (name, pool, dtype) in enumerate(every_pair(SHAPES, ("none", "mean", "2"), dtypes)):
        shape, layout = SHAPES[name]
        activation = counting(2, *shape[1:]) / 7
        kept = take_activation(activation, layout, SaveStyle(pool, dtype))
        pairs = [("a", kept[:1]), ("b", kept[1:])]
        run = load_run(finished_run([{"call": pairs}], ["a", "b"], f"run{number}"))
        np.testing.assert_array_equal(run["call"], kept.float().numpy(), name)
        assert (run["call"].dtype == np.float16) == (dtype == "float16")


# --- through the command

SAVED = ("features.0", "features.3.expand1x1")
SQUEEZED = seeded_squeezed()
INSPECT = (
    *("inspect", "tests.toy_models:Squeezed", "arrays/*.npy", "--weights", "random"),
    *("--device", "cpu", "--grids", "none"),
    *(word for layer in SAVED for word in ("--layers", layer)),
    *("-o", "run", "-q"),
)


def save_pixels(sides):
    """Files of exact pixels, one a height, 40 pixels wide."""
    Path("arrays").mkdir()
    arrays = [
        np.random.default_rng(number).normal(size=(3, side, 40)).astype(np.float32)
        for number, side in enumerate(sides)
    ]
    for number, array in enumerate(arrays):
        np.save(f"arrays/t{number:02}.npy", array)
    return arrays


def assert_near(values, expected):
    """Kernels for channels that lie last add in another order."""
    near = 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(values, expected, rtol=0, atol=near)


def test_images_of_several_sizes_keep_their_own_tensors_in_their_order(run):
    arrays = save_pixels([(32, 48, 40)[number % 3] for number in range(12)])
    assert run(*INSPECT, "--save", "tensors", "--batch-size", "5").code == 0
    saved = load_run("run")
    for layer in SAVED:
        assert saved.images_of(layer) == tuple(f"t{number:02}" for number in range(12))
        for key, expected in zip(saved.images, outputs(SQUEEZED, layer, arrays), strict=True):
            assert_near(saved.tensor(layer, key), expected)
    first, second = (outputs(SQUEEZED, SAVED[0], arrays[n : n + 1])[0].shape for n in (0, 1))
    assert refusal(lambda: saved[SAVED[0]])[0] == (
        f"the images' tensors of 'features.0' differ in shape: t00 has "
        f"{'x'.join(map(str, first))}, "
        f"t01 has {'x'.join(map(str, second))}"
    )


def test_means_of_images_of_several_sizes_are_rows_in_the_order_of_the_images(run):
    arrays = save_pixels([(32, 48, 40)[number % 3] for number in range(40)])
    assert run(*INSPECT, "--save", "tensors", "--pool", "mean", "--batch-size", 8).code == 0
    assert len(list(Path("run/tensors").glob("*.safetensors"))) == 2  # 32 images each
    saved = load_run("run")
    for layer in SAVED:
        seen = outputs(SQUEEZED, layer, arrays)
        assert_near(saved[layer], np.stack([each.mean((1, 2)) for each in seen]))
        rows = [key for tensor in saved.saved[layer] for key in tensor.images]
        assert rows == list(saved.images)  # in the files too


def test_chosen_channels_are_saved_in_another_dtype(run):
    arrays = save_pixels([32] * 3)
    words = ("--tensor-channels", "7,2-3", "--tensor-dtype", "float16", "--pool", "max")
    assert run(*INSPECT, "--save", "tensors", *words).code == 0
    values = load_run("run")["features.0"]
    expected = [each.max((1, 2))[[7, 2, 3]] for each in outputs(SQUEEZED, "features.0", arrays)]
    assert values.dtype == np.float16
    np.testing.assert_allclose(values, expected, rtol=1e-3)
    assert run("export", "run", "--to", "csv", "-o", "out", "--layers", "features.0").code == 0
    header, first, *_ = csv.reader(Path("out/features.0.csv").read_text().splitlines())
    assert header == ["image", "7", "2", "3"]
    assert np.array(first[1:], dtype=np.float16).tolist() == values[0].tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--save", "tensors", "--max-disk", "0.000001"),
            r"error: the tensors would take 0\.0\d*[1-9] GB, more than --max-disk 1e-06\n",
        ),
        (("--pool", "mean"), "error: --pool, --tensor-dtype and --tensor-channels are for --save"),
        (
            ("--save", "tensors", "--tensor-channels", "all"),
            (
                "error: --tensor-channels cannot read 'all'\n"
                "hint: channels are counted from 0: '3,7,10-20'; without the option all are saved\n"
            ),
        ),
    ],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(run, words, said):
    save_pixels([32] * 12)
    ended = run(*INSPECT, *words)
    assert (ended.code, ended.out) == (2, "")
    assert re.match(said, ended.err)
    assert files_in(".") == ["arrays"]


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ((), 8 * 31 * 19 * 4),  # features.0 of 64 by 40 pixels
        (("--tensor-dtype", "float16"), 8 * 31 * 19 * 2),
        (("--pool", "2", "--tensor-channels", "0,5,99"), 2 * 2 * 2 * 4),
    ],
)
def test_max_disk_limits_the_tensors_of_all_images_together(run, words, size):
    save_pixels([64] * 3)
    asked = (*INSPECT[:9], "--layers", SAVED[0], "--size", "64", "--save", "tensors", "--dry-run")
    limits = [f"{(3 * size + more) / 1e9:.12f}" for more in (-0.5, 0.5)]
    assert [run(*asked, *words, "--max-disk", limit).code for limit in limits] == [2, 0]


def test_channels_that_no_layer_has_are_an_error_and_others_are_reported(run):
    save_pixels([32])
    code, _, err = run(*INSPECT, "--save", "tensors", "--tensor-channels", 999)
    assert (code, "--tensor-channels" in err.splitlines()[0]) == (2, True), err
    assert not Path("run").exists()
    code, _, err = run(*INSPECT, "--save", "tensors", "--tensor-channels", "0,999")
    assert code == 0
    assert "warning: --tensor-channels: features.0 has channels 0 to 7 only" in err


LOUD_NET = """
from torch import nn


class Loud(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)
        nn.init.constant_(self.conv.weight, 0)
        nn.init.constant_(self.conv.bias, -70_000)
        self.calm = nn.Conv2d(2, 2, 1)
        nn.init.constant_(self.calm.weight, 0)

    def forward(self, x):
        return self.calm(self.conv(x)).mean((2, 3))
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_that_float16_does_not_hold_are_reported(run, cat, dtype):
    Path("net.py").write_text(LOUD_NET)
    words = ("--grids", "none", "--size", "32", "--save", "tensors", "--tensor-dtype", dtype)
    code, _, err = run("inspect", "net.py:Loud", cat, *words, "-o", "out")
    saved = load_run("out")
    assert code == 0
    assert np.isinf(saved["conv"]).all() == (dtype == "float16")
    assert np.isfinite(saved["calm"]).all()
    said = [line for line in err.splitlines() if "float16" in line]
    assert len(said) == (dtype == "float16")
    assert all("saved as inf; conv reaches 7e+04; bfloat16 holds them" in line for line in said)
