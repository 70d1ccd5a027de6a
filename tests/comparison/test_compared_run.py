"""``hookcli diff`` of invalid or damaged inputs: it names the cause and a remedy, never "equal"."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hookcli.errors import RequestError
from hookcli.reading.load import load_run
from tests.toy_runs import ToyRun, array, edit_json, run_of, write_json

AGAIN = "run hookcli inspect again"
DAMAGED = "'a/manifest.json' is damaged:"
GOLDEN = "make it with: hookcli golden"
SAME_KIND = "run both with --sketch, or both with --save tensors for exact figures"
SAME_LAYERS = (
    "record the same layers and sides; if the layers have different names: "
    "hookcli diff --match order"
)


@pytest.fixture(autouse=True)
def reference():
    run_of(conv=[3, 4]).write("a")
    replace(run_of(conv=[3, 4]), kept="sketches").write_golden("a.json")


@pytest.fixture
def refused(run):
    """The message and the hint of a diff that was refused; nothing on stdout, code 2."""

    def command(*words):
        ended = run("diff", *words)
        assert (ended.code, ended.out) == (2, "")
        message, *hints = ended.err.splitlines()
        assert message.startswith("error: ")
        assert all(hint.startswith("hint: ") for hint in hints)
        return message.removeprefix("error: "), *(hint.removeprefix("hint: ") for hint in hints)

    return command


@pytest.fixture
def stdin(monkeypatch):
    def fill(data):
        stream = None if data is None else io.TextIOWrapper(io.BytesIO(data))
        monkeypatch.setattr(sys, "stdin", stream)

    return fill


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope", "there is no folder and no file 'nope'"),
        ("empty", "'empty' is not the folder of a run"),
        ("a/manifest.json", "'a/manifest.json' is neither a run's folder nor a golden file"),
        ("blank.json", "'blank.json' is empty"),
        ("cut.json", "'cut.json' is not a complete golden file: Input data was truncated"),
        ("bytes.json", "'bytes.json' is not a complete golden file: "),
        ("weights.pt", "'weights.pt' is neither a run nor a golden file"),
    ],
)
def test_what_is_neither_a_run_nor_a_golden_file(refused, name, message):
    Path("empty").mkdir()
    Path("blank.json").write_text(" \n")
    Path("cut.json").write_bytes(Path("a.json").read_bytes()[:-9])
    for file in ("bytes.json", "weights.pt"):
        Path(file).write_bytes(b"\xff\xfe\x00")
    assert refused("a", name)[0].startswith(message)


def test_a_run_without_manifest(refused):
    Path("a/manifest.json").unlink()
    assert refused("a", "a") == (
        "'a' is the folder of an unfinished run",
        "finish it with the same command and --resume",
    )


@pytest.mark.parametrize("version", [2, "two", None])
def test_a_newer_schema_version(refused, version):
    edit_json(Path("a/manifest.json"), schema_version=version)
    edit_json(Path("a.json"), schema_version=version)
    hint = "a later version wrote it: pip install --upgrade hookcli"
    for name, file in (("a", "a/manifest.json"), ("a.json", "a.json")):
        message = f"'{file}' has schema version {version}, but this version reads up to 1"
        assert refused(name, name) == (message, hint)


@pytest.mark.parametrize(
    ("file", "size", "message"),
    [
        ("manifest.json", 0, "'a/manifest.json' is damaged: Input data was truncated"),
        ("tensors/index.json", 60, "'a/tensors/index.json' is damaged: "),
        ("tensors/shard-000000.safetensors", 70, "cannot read 'a/tensors/shard-"),
        ("records.parquet/part-000000.parquet", 400, "cannot read 'a/records.parquet': "),
    ],
)
def test_a_file_that_was_cut_off(refused, file, size, message):
    whole = Path("a", file).read_bytes()
    Path("a", file).write_bytes(whole[:size])
    said, hint = refused("a", "a")
    assert (said.startswith(message), hint) == (True, AGAIN)


def test_records_that_are_gone(refused):
    Path("a/records.parquet/part-000000.parquet").unlink()
    wanted = ("the run in 'a' has no records.parquet", AGAIN)
    assert refused("a", "a") == wanted
    shutil.rmtree("a/records.parquet")
    assert refused("a", "a") == wanted


def test_records_without_rows(refused):
    ToyRun({"cat": {}}, kept="nothing").write("b")
    assert refused("b", "b") == (
        "nothing could be compared: no layer was recorded",
        "choose --layers",
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"name": "toy"}}, f"{DAMAGED} model lacks 'task'"),
        (
            {"command": ["hookcli", "inspect", "--pool"]},
            "'a' is damaged: its command ends in --pool, without a value",
        ),
        ({"sizes": {"layers.csv": 10**400}}, f"{DAMAGED} sizes[...]: expected `int` <= {2**62}"),
        (
            {"images": []},
            (
                "'a/tensors/index.json' is damaged: 'conv' has the image 'cat', "
                "unknown to the manifest"
            ),
        ),
    ],
)
def test_a_manifest_that_lacks_what_is_needed(refused, values, message):
    edit_json(Path("a/manifest.json"), **values)
    assert refused("a", "a")[0] == message


@pytest.mark.parametrize("name", ["manifest.json", "layers.csv", "tensors/index.json"])
def test_a_link_out_of_the_run_folder_is_not_read(run, name):
    Path("a/layers.csv").write_text("order\n1\n")
    Path("a", name).rename("outside")
    Path("a", name).symlink_to(Path("outside").absolute())
    read = {"layers.csv": lambda of: of.layers}.get(name, lambda of: of.records)
    with pytest.raises(RequestError, match="it is a link out of the run folder"):
        read(load_run("a"))


@pytest.mark.parametrize(
    ("shard", "shape", "reason"),
    [
        ("../b.safetensors", [1, 2], "is not in the folder of the run"),
        ("/b.safetensors", [1, 2], "is not in the folder of the run"),
        ("tensors/shard-000000.safetensors", [1, -1, 5], "expected `int` >= 0"),
        ("tensors/shard-000000.safetensors", [1, 2**62, 2], f"no tensor has the shape 1x{2**62}x2"),
    ],
)
def test_an_index_that_leads_out_of_the_run_or_promises_too_much(refused, shard, shape, reason):
    shutil.copy("a/tensors/shard-000000.safetensors", "b.safetensors")
    index = json.loads(Path("a/tensors/index.json").read_bytes())
    index["calls"]["conv"][0] |= {"shard": shard, "shape": shape}
    write_json(Path("a/tensors/index.json"), index)
    said, hint = refused("a", "a")
    assert said.startswith("'a/tensors/index.json' is damaged: ")
    assert (said.endswith(reason), hint) == (True, AGAIN)


def test_room_is_made_for_a_tensor_only_when_its_shard_holds_it(refused, run):
    """The index promises a terabyte, and the shard has two numbers."""
    index = json.loads(Path("a/tensors/index.json").read_bytes())
    index["calls"]["conv"][0]["shape"] = [1, 2**38]
    write_json(Path("a/tensors/index.json"), index)
    message = "cannot read 'a/tensors/shard-000000.safetensors': conv in it is F32 1x2"
    ended = run("export", "a", "--to", "npy")
    assert (ended.code, ended.err.splitlines()[0]) == (2, f"error: {message}")


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("image", None, "no column 'image'"),
        ("shape", [[1, None]], "an empty length in a shape"),
        ("image", [{"a": "x"}], "struct<a: string> in the column 'image'"),
        ("call_id", [None], "an empty cell in the column 'call_id'"),
        ("mean", ["3.5"], "string in the column 'mean'"),
    ],
)
def test_records_of_another_form(refused, column, values, reason):
    file = Path("a/records.parquet/part-000000.parquet")
    table = pq.ParquetFile(file).read()
    index = table.column_names.index(column)
    table = table.remove_column(index)
    if values is not None:
        table = table.append_column(column, pa.array(values))
    pq.write_table(table, file)
    message = f"cannot read 'a/records.parquet': it is not the table of a run: {reason}"
    assert refused("a", "a") == (message, AGAIN)


def test_a_table_of_more_rows_than_its_bytes_can_hold(refused):
    """A million times the same row is a few kilobytes of Parquet, and gigabytes in memory."""
    file = Path("a/records.parquet/part-000000.parquet")
    table = pq.ParquetFile(file).read()
    some = pa.concat_tables([table] * 100).combine_chunks()
    pq.write_table(pa.concat_tables([some] * 1000), file, compression="zstd")
    assert "it is not the table of a run: 100000 rows in " in refused("a", "a")[0]


def test_a_long_text_that_is_in_many_rows_is_not_laid_out(refused):
    """One text of 100,000 letters in a dictionary, and 400 rows that name it."""
    file = Path("a/records.parquet/part-000000.parquet")
    table = pq.ParquetFile(file).read()
    index = table.column_names.index("module_type")
    table = pa.concat_tables([table] * 400)
    table = table.set_column(index, "module_type", pa.array(["x" * 100_000] * 400))
    pq.write_table(table, file, compression="zstd", store_schema=False)
    assert "it is not the table of a run: a text of 100000 letters" in refused("a", "a")[0]


@pytest.mark.parametrize("name", ["a/manifest.json", "a/tensors/index.json", "a.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(refused, name):
    Path(name).unlink()
    os.mkfifo(name)
    other = "a" if name.startswith("a/") else "a.json"
    assert refused("a", other)[0] == f"cannot read {name!r}: is not a regular file"


def test_a_run_without_images(refused):
    write_json(Path("none.json"), run_of(conv=[1]).golden() | {"images": [], "calls": []})
    assert refused("none.json", "a") == (
        "'none.json' holds no image",
        "make it again with readable images",
    )


def test_tensors_of_another_run(refused):
    run_of(conv=[3, 4, 5]).write("b")
    shutil.rmtree("a/tensors")
    shutil.copytree("b/tensors", "a/tensors")
    run_of(conv=[3, 4]).write("c")
    assert refused("c", "a") == (
        "'a' is damaged: the tensor of 'conv' has the shape 3, but its record says 1x2",
        AGAIN,
    )


def test_a_part_of_the_records_that_is_there_twice(refused):
    one, two = (f"records.parquet/part-00000{number}.parquet" for number in (0, 1))
    shutil.copy(f"a/{one}", f"a/{two}")
    edit_json(Path("a/manifest.json"), files=["layers.csv", one, two])
    assert refused("a", "a") == (
        "'a' is damaged: the call of 'cat' 'conv' appears 2 times",
        "make it again",
    )


def golden(**values):
    """A golden file with other values of some keys, of a call where it has these."""
    document = json.loads(Path("a.json").read_bytes())
    mine = {name: values.pop(name) for name in list(values) if name in document["calls"][0]}
    document["calls"][0] |= mine
    write_json(Path("b.json"), document | values)
    return "b.json"


def test_sketches_of_another_version(refused):
    name = golden()
    edit_json(Path(name), sketch={"version": 2, "buckets": 67, "dtype": "float32"})
    assert refused("a", name) == (
        "the sketches in 'b.json' have version 2, not 1",
        "make the golden file again with this version",
    )


SHORT, NOT_FINITE = (base64.b64encode(data).decode() for data in (b"\0" * 8, b"\0\0\xc0\x7f" * 67))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shape": [-1, 2]}, "calls[0].shape[0]: expected `int` >= 0"),
        ({"shape": [2**40, 2**40]}, f"'conv' has an impossible shape: [{2**40}, {2**40}]"),
        ({"std": None}, "'conv' has impossible figures"),
        ({"nan_count": 500}, "'conv' has impossible figures"),
        ({"sketch": SHORT}, "a sketch has 268 bytes, not 8"),
        ({"sketch": "!"}, "a sketch in base64: Only base64 data is allowed"),
        ({"sketch": NOT_FINITE}, "the sketch of 'conv' is not finite"),
        ({"image": "dog"}, "'conv' belongs to the image 'dog', which is not in the run"),
    ],
)
def test_a_golden_file_that_lacks_what_is_needed(refused, values, message):
    assert refused("a", golden(**values)) == (f"'b.json' is damaged: {message}", "make it again")


def test_a_golden_file_or_a_call_without_one_of_its_parts(refused):
    text = Path("a.json").read_text()
    for where, keys in (
        ("it", ("sketch", "versions", "images", "calls")),
        ("calls[0]", ("shape", "mean", "sketch")),
    ):
        for key in keys:
            document = json.loads(text)
            (document if where == "it" else document["calls"][0]).pop(key)
            write_json(Path("b.json"), document)
            message = f"'b.json' is damaged: {where} lacks {key!r}"
            assert refused("b.json", "a") == (message, "make it again")


def test_calls_and_images_that_appear_twice(refused):
    document = json.loads(Path("a.json").read_bytes())
    for key, noun in (("calls", "call of 'cat' 'conv'"), ("images", "image 'cat'")):
        write_json(Path("b.json"), document | {key: document[key] * 2})
        assert refused("a", "b.json") == (
            f"'b.json' is damaged: the {noun} appears 2 times",
            "make it again",
        )


def test_nothing_on_standard_input(refused, stdin):
    for data in (b"", b"\n", None):
        stdin(data)
        assert refused("a", "-") == ("standard input is empty", GOLDEN)


def test_standard_input_for_both(refused, stdin):
    stdin(Path("a.json").read_bytes())
    assert refused("-", "-") == (
        "both runs are '-', but standard input holds only one golden file",
        "give the other as a file",
    )


def test_a_golden_file_on_standard_input(run, stdin):
    stdin(Path("a.json").read_bytes())
    ended = run("diff", "a", "-")
    assert (ended.code, ended.out.splitlines()[-3]) == (0, "A (the reference): a; B: -")


def test_runs_of_different_models(refused, run):
    replace(run_of(conv=[3, 4]), model={"name": "other"}).write("b")
    assert refused("a", "b") == (
        "'a' is a run of toy, and 'b' one of other",
        (
            "these are different models: "
            "choose how to pair their calls with --match id or --match order"
        ),
    )
    assert run("diff", "a", "b", "--match", "id").code == 0


def test_runs_of_different_images(refused):
    run_of({"dog": {"conv": array([3, 4])}, "fox": {"conv": array([3, 4])}}).write("b")
    hint = "use the same images in both runs; for two images: hookcli compare"
    assert refused("a", "b") == ("no image of 'a' is in 'b': 'cat' and 'dog' and 1 more", hint)


def test_runs_of_two_images_of_one_name(refused):
    replace(run_of(conv=[3, 4]), hashes={"cat": "another"}).write("b")
    assert refused("a", "b") == (
        "'cat' is not the same image in both: cat.png and cat.png have different contents",
        "use the same file in both runs; for two images: hookcli compare",
    )


def test_runs_that_recorded_other_things(refused):
    run_of({"cat": {"input:conv": array([3, 4])}}).write("b")
    for name, what in (("b", "'input:conv' in B"), (golden(calls=[]), "none in B")):
        assert refused("a", name) == (f"no call is in both: 'conv' in A, and {what}", SAME_LAYERS)


def test_runs_of_images_of_other_sizes(refused):
    run_of(conv=[3, 4, 5]).write("b")
    assert refused("a", "b") == (
        "nothing could be compared: conv: shapes differ: 1x2 and 1x3",
        "use the same model and images of the same size in both runs, or linear layers",
    )


@pytest.mark.parametrize("metric", ["mean-abs", "cosine"])
def test_a_metric_that_figures_and_sketches_do_not_know(refused, metric):
    replace(run_of(conv=[3, 4]), kept="nothing").write("b")
    hint = SAME_KIND if metric == "cosine" else SAME_KIND.replace("both with --sketch, or ", "")
    message = f"nothing could be compared: {metric} cannot be computed from"
    assert refused("a", "b", "--metric", metric) == (f"{message} figures", hint)
    if metric == "mean-abs":
        assert refused("a.json", "a", "--metric", metric) == (f"{message} sketches", hint)


def test_pooled_tensors_are_not_compared_with_whole_ones_but_their_figures_are(run):
    """The pooled values are not the same; the figures of the whole tensors are."""
    maps = {"cat": {"conv": np.ones((1, 2, 3, 3), "f4")}}
    ToyRun(maps).write("b")
    ToyRun(maps, saved={"conv": array([5, 5])}, command=("--pool", "mean")).write("c")
    ToyRun(maps, saved={"conv": array([5])}, command=("--pool", "mean")).write("damaged")
    replace(ToyRun(maps), kept="sketches").write_golden("d.json")
    for one in ("b", "d.json", "damaged"):
        ended = run("diff", one, "c")
        assert ended.code == 0
        assert "only figures were compared " in ended.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rtol", "inf"], "--rtol inf: not a finite number"),
        (["--layer-tolerance", "cnv=1"], "no compared call matches 'cnv'"),
    ],
)
def test_options_that_cannot_be_read(refused, words, message):
    assert refused("a", "a", *words)[0] == message
