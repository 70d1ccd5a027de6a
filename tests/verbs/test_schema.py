"""The JSON Schema made from types: true of what every command prints, and of nothing else."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import sys
import typing
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from PIL import Image

import hookcli
from hookcli.__main__ import _run
from hookcli.distance import comparison as compared
from hookcli.distance.sketch import sketch_values, to_bytes, to_text
from hookcli.distance.tolerance import Metric, Tolerance
from hookcli.networks.tasks import TASKS
from hookcli.outside.documents import SCHEMA_VERSION
from hookcli.records.rules import RULES
from hookcli.verbs.schema import make_schema
from tests.conftest import PHOTOS
from tests.toy_models import SMALL_NET
from tests.toy_runs import ToyRun

SCHEMA = make_schema()
DEFS = SCHEMA["$defs"]
NAMES = [each["$ref"].removeprefix("#/$defs/") for each in SCHEMA["anyOf"]]


CPU = "--device cpu"
OWN = f"pixels.npy nan.npy {CPU}"
SQUEEZE = f"tests.toy_models:Squeezed cat.png --weights random --size 64 {CPU}"
LOOKS = f"inspect tests.toy_models:Looks cat.png {CPU} --size 32"
# what is run, its model and images among it
COMMANDS = {
    "NaN, skipped images, uncalled layers": f"inspect net.py:Net {OWN} text.png --layers all",
    "both sides": f"inspect net.py:Net {OWN} --layers leaf --at both",
    "boxes": f"inspect net.py:Boxes {OWN}",
    "shares of the image": f"inspect net.py:Masks {OWN}",
    "flow": f"inspect net.py:Flow {OWN}",
    "edits": f"inspect net.py:Net {OWN} --edit conv{{0}}:zero --layers leaf",
    "an edit of nothing finite": f"inspect net.py:Net pixels.npy {CPU} --edit conv:set=nan",
    "pruning": f"inspect net.py:Net {OWN} --prune fc=0.5 --layers leaf",
    "tensors": f"inspect net.py:Net {OWN} --save tensors --tensor-channels 1",
    "a sheet of a folder": f"inspect {SQUEEZE} --grids sheet --overview",
    "a focus": f"inspect {SQUEEZE} --focus 150,110,60,60 --layers conv[1:2]",
    "gradients that are absent": f"gradients net.py:Net pixels.npy {CPU} --layers leaf",
    "gradients of NaN": f"gradients net.py:Net {OWN} text.png --layers leaf",
    "gradients of a box": f"gradients net.py:Boxes pixels.npy {CPU} --layers leaf",
    "gradients with edits": f"gradients net.py:Net pixels.npy {CPU} --edit param:conv.*:zero",
    "heat maps": f"gradients {SQUEEZE} --cam features.3 --saliency --layers conv[-1]",
    "attention": f"{LOOKS} --layers leaf --attention all --rollout",
    "channels": f"ablate net.py:Net pixels.npy text.png {CPU} --layers leaf",
    "channels of NaN": f"ablate net.py:Net {OWN}",
    "the same twice": f"compare net.py:Net pixels.npy text.png {CPU} --against threads=1",
    "another memory format": f"compare {SQUEEZE} --layers all --against channels-last",
    "a survey": "layers net.py:Net",
    "a survey of channels last": "layers tests.toy_models:ChannelsLast --size 8",
    "models": "models *",
}


@pytest.fixture(autouse=True)
def inputs():
    write_inputs()


def write_inputs():
    """A model, pixels, pixels that are not all numbers, a photo, and a file that is no picture."""
    Path("net.py").write_text(SMALL_NET)
    pixels = np.stack([np.full((2, 2), v, np.float32) for v in (3.0, -4.0, 0.0)])
    np.save("pixels.npy", pixels)
    np.save("nan.npy", pixels * np.float32("nan"))
    Path("cat.png").write_bytes((PHOTOS / "cat.png").read_bytes())
    Path("text.png").write_text("hello")


def validator(name):
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": DEFS})


def faults(name, document):
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in validator(name).iter_errors(document)
    ]


# --- true of everything


@pytest.mark.parametrize("what", COMMANDS)
def test_what_a_command_prints_and_leaves_is_as_the_schema_says(run, what):
    words = COMMANDS[what].split()
    runs = words[0] in ("inspect", "gradients")
    out = ("-o", "out") if runs else ()
    ended = run(*words, *out, "--format", "json")
    assert ended.code == (6 if "text.png" in words else 0)
    assert faults(words[0], json.loads(ended.out)) == []
    if runs:
        assert [faults(name, read("out", name)) for name in RUN_FILES] == [[]] * len(RUN_FILES)
    if "tensors" in words:
        assert faults("index.json", read("out/tensors", "index.json")) == []


RUN_FILES = ("run.json", "manifest.json", "report.json")


def read(folder, name):
    return json.loads(Path(folder, name).read_text())


@pytest.mark.parametrize(
    "what",
    ["both sides", "edits", "gradients that are absent", "channels of NaN", "a survey", "models"],
)
def test_a_line_of_jsonl_is_as_the_schema_says(run, what):
    words = COMMANDS[what].split()
    lines = run(*words, "--format", "jsonl").out.splitlines()
    assert [faults(f"{words[0]}.jsonl", json.loads(line)) for line in lines] == [[]] * len(lines)
    assert lines


def test_what_report_and_export_print_is_as_the_schema_says(run):
    run(*COMMANDS["tensors"].split(), "-o", "out")
    export = ("export", "out", "--to", "csv", "--overwrite", "--format")
    assert faults("export", json.loads(run(*export, "json").out)) == []
    for line in run(*export, "jsonl").out.splitlines():
        assert faults("export.jsonl", json.loads(line)) == []
    assert faults("report", json.loads(run("report", "out", "--format", "json").out)) == []
    assert faults("report.jsonl", json.loads(run("report", "out", "--format", "jsonl").out)) == []


SKETCHED = f"inspect net.py:Net {OWN} text.png --layers all --sketch -o"
DIFFS = {
    "nothing": "one one --equal-nan",
    "edits": "one edited --layer-tolerance conv*=0.5 --atol 0.1",
    "images and layers": "one fewer --metric cosine",
    "a golden file": "golden.json edited",
}


@pytest.mark.parametrize("what", DIFFS)
def test_what_golden_and_diff_print_is_as_the_schema_says(run, what):
    for words in (
        f"{SKETCHED} one",
        f"{SKETCHED} edited --edit conv{{0}}:set=0.5",
        f"inspect net.py:Net pixels.npy {CPU} --layers leaf --sketch -o fewer",
    ):
        run(*words.split())
    golden = run("golden", "one", "-o", "golden.json")
    assert (golden.code, faults("golden", read(".", "golden.json"))) == (0, [])
    words = ("diff", *DIFFS[what].split(), "--format")
    ended = run(*words, "json")
    assert ended.code == (0 if what == "nothing" else 7)
    assert faults("diff", json.loads(ended.out)) == []
    lines = [json.loads(line) for line in run(*words, "jsonl").out.splitlines()]
    assert [faults("diff.jsonl", line) for line in lines] == [[]] * len(lines)
    assert lines


def test_top_images_and_files_of_any_name_follow_the_schema(run):
    Path("photos").mkdir()
    for name in (b"not\xffutf8.png", b"50%41.png"):
        Image.linear_gradient("L").save(Path("photos", name.decode(errors="surrogateescape")))
    ended = run("inspect", *SQUEEZE.split(), "photos", "-o", "out", "--format", "json")
    assert faults("inspect", json.loads(ended.out)) == []
    report = read("out", "report.json")
    assert faults("report.json", report) == []
    assert report["top_images"]


# --- and of nothing else


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """One of each, by its name, of a run with as much in it as possible."""
    with (
        contextlib.chdir(tmp_path_factory.mktemp("documents")),
        pytest.MonkeyPatch.context() as patch,
    ):
        write_inputs()
        return {name: json.loads(text) for name, text in print_documents(patch)}


def print_documents(patch):
    def run(command, form=" --format json"):
        patch.setattr(sys, "argv", ["hookcli", *f"{command}{form}".split()])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert _run() in (0, 6), command
        return out.getvalue()

    net, both = "net.py:Net cat.png", f"net.py:Net cat.png text.png {CPU}"
    saved = "--layers conv,head --save tensors --pool mean --tensor-channels 1 -o out"
    yield "inspect", run(f"inspect {net} nan.npy text.png {CPU} {saved}")
    yield from ((name, Path("out", name).read_text()) for name in RUN_FILES)
    yield "index.json", Path("out/tensors/index.json").read_text()
    yield "report", run("report out")
    yield "export", run("export out --to npy")
    more = "--sketch --cam conv --edit fc:zero -o out --overwrite"
    yield "gradients", run(f"gradients {net} {CPU} {more}")
    yield "ablate", run(f"ablate {both}")
    yield "golden", run(f"golden {both}", form="")
    yield "diff", run("diff out out --equal-nan --layer-tolerance conv=1")
    yield "compare", run(f"compare {both} --against threads=1")
    yield "layers", run("layers net.py:Net")
    photos = write_toy("toy", 12)
    labels = "".join(f"{key},{'ab'[n % 2]}\n" for n, key in enumerate(photos))
    Path("labels.csv").write_text(f"image,label\n{labels}")
    yield "places", run(f"places toy --correspond {photos[1]} --at 3,3")
    yield "map", run("map toy --labels labels.csv")
    write_toy("control", 12)
    yield "probe", run("probe toy --labels labels.csv --control control")
    yield "similarity", run("similarity toy toy -o alike")
    yield "analysis.json", Path("alike/analysis.json").read_text()
    yield "models", run("models resnet18")


def write_toy(folder, count):
    """Write a run of two layers with maps, of which two images are the same."""
    draw = np.random.default_rng(0)
    maps = draw.normal(size=(count, 1, 32, 4, 4)).astype("f4")
    maps[1] = maps[0]
    images = {f"photo{n}": {"conv1": maps[n], "conv2": -(maps[n] ** 2)} for n in range(count)}
    ToyRun(images, parts={key: [0, 0, 8, 8] for key in images}).write(folder)
    return list(images)


def paths_in(value, path=()):
    """The way to every object; of a list only to the first and the last."""
    if isinstance(value, dict):
        yield path
        for key in value:
            yield from paths_in(value[key], (*path, key))
    elif isinstance(value, list):
        for index in {0, len(value) - 1} if value else ():
            yield from paths_in(value[index], (*path, index))


def changed(document, path, change):
    """A copy of ``document`` with one object in it changed."""
    whole = copy.deepcopy(document)
    part = whole
    for step in path:
        part = part[step]
    change(part)
    return whole


# whose keys are call ids or files
MAPS = ("calls", "histograms", "written", "top_images", "ranked_images", "sizes", "code")


def test_a_document_that_lacks_a_field_or_has_one_more_is_refused(documents):
    taken = []
    for name, document in documents.items():
        valid = validator(name).is_valid
        assert valid(document), name
        for path in paths_in(document):
            if path and path[-1] in MAPS:
                continue
            here = f"{name}: {'/'.join(map(str, path))}"
            if valid(changed(document, path, lambda part: part.update(surprise=1))):
                taken.append(f"{here} with more")
            part = document
            for step in path:
                part = part[step]
            optional = {"channels"} if name == "index.json" and path else set()
            optional |= {"sizes"} if name == "manifest.json" and not path else set()
            taken += [
                f"{here} without {key}"
                for key in part.keys() - optional
                if valid(changed(document, path, lambda part, key=key: part.pop(key)))
            ]
    assert taken == []


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("inspect", ("schema_version",), 2),
        ("inspect", ("command", 1), "gradients"),
        ("inspect", ("layers", 0, "mean"), "0.5"),
        ("inspect", ("layers", 0, "order"), -1),
        ("inspect", ("layers", 0, "shape"), "1x2x3x3"),
        ("inspect", ("layers", 0, "zero_fraction"), 1.5),
        ("inspect", ("layers", 0, "nan_count"), -1),
        ("inspect", ("layers", 0, "nan_count"), None),
        ("inspect", ("layers", 0, "side"), "left"),
        ("inspect", ("findings", 0, "rule"), "luck"),
        ("inspect", ("images", 0, "sha256"), "ff"),
        ("inspect", ("images", 0, "predictions", 0, "measure"), "guess"),
        ("gradients", ("command", 1), "inspect"),
        ("gradients", ("images", 0, "score"), 1.0),
        ("ablate", ("channels", 0, "rank"), 0),
        ("golden", ("kind",), "silver"),
        ("golden", ("sketch", "version"), 2),
        ("golden", ("calls", 0, "sketch"), "AAAA"),
        ("golden", ("calls", 0, "side"), "left"),
        ("diff", ("command", 1), "compare"),
        ("diff", ("tolerance", "metric"), "taste"),
        ("diff", ("tolerance", "layers"), [["conv"]]),
        ("diff", ("layers", 0, "rel_l2"), -1),
        ("diff", ("layers", 0, "holds"), "yes"),
        ("diff", ("layers", 0, "order"), 0),
        ("compare", ("command", 1), "diff"),
        ("compare", ("first",), 1),
        ("layers", ("layers", 0, "traps"), "none"),
        ("models", ("models", 0, "task"), "cooking"),
        ("manifest.json", ("versions", "torch"), 2),
        ("manifest.json", ("files",), ["run.json", "run.json"]),
        ("report.json", ("grids", 0, "size"), [1]),
        ("report.json", ("focus",), {"box": [1, 2, 3, 4]}),
        ("index.json", ("calls", "conv"), []),
    ],
)
def test_a_value_of_another_kind_is_refused(documents, name, path, value):
    document = documents[name]
    *way, last = path
    wrong = changed(document, way, lambda part: part.__setitem__(last, value))
    assert wrong != document
    assert not validator(name).is_valid(wrong)


def test_the_whole_schema_takes_every_document_and_no_others(documents):
    whole = Draft202012Validator(SCHEMA)
    assert [name for name, document in documents.items() if not whole.is_valid(document)] == []
    assert not whole.is_valid({})
    assert not whole.is_valid({"schema_version": 1})


# --- the schema itself


def test_the_schema_is_a_valid_json_schema():
    Draft202012Validator.check_schema(SCHEMA)


def references(value):
    if isinstance(value, dict):
        yield from (value["$ref"],) if "$ref" in value else ()
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def test_every_part_of_the_schema_is_there_and_needed():
    assert {name.removeprefix("#/$defs/") for name in references(SCHEMA)} == DEFS.keys()
    assert all(name.startswith("#/$defs/") for name in references(SCHEMA))


def test_every_field_of_a_document_is_always_there_but_these():
    sometimes = {
        (name, field)
        for name in NAMES
        for field in DEFS[name]["properties"].keys() - set(DEFS[name]["required"])
    }
    in_memory = {
        (name, "options") for name in ("golden", "run.json", "manifest.json", "report.json")
    }
    computed = {(name, "attention") for name in ("inspect", "gradients")}
    assert sometimes == computed | {("manifest.json", "sizes")} | in_memory


def objects(value):
    """The schemas of objects with fields of their own."""
    if isinstance(value, dict):
        if isinstance(value.get("properties"), dict) and "type" in value:
            yield value
        for part in value.values():
            yield from objects(part)
    elif isinstance(value, list):
        for part in value:
            yield from objects(part)


def test_every_object_and_every_field_says_what_it_is():
    parts = [part for part in objects(DEFS) if part["required"][0] != "hookcli"]  # no versions
    assert len(parts) == len(DEFS)  # none is inside another
    assert [part for part in parts if not part["description"]] == []
    assert [
        name
        for part in parts
        for name, field in part["properties"].items()
        if not field["description"].endswith(".") or "  " in field["description"]
    ] == []


def test_the_choices_are_those_of_the_code():
    assert DEFS["Finding"]["properties"]["rule"]["enum"] == list(RULES)
    tasks = DEFS["CatalogEntry"]["properties"]["task"]["enum"]
    assert sorted(tasks) == sorted({*(task.word for task in TASKS), "depth", "features"})
    tolerance = DEFS["Tolerance"]["properties"]
    assert list(tolerance) == [field.name for field in dataclasses.fields(Tolerance)]
    assert tolerance["metric"]["enum"] == sorted(typing.get_args(Metric))
    said = {"schema_version", "command", "verdict", "remarks"}
    comparison = DEFS["compare"]["properties"].keys() - said
    fields = {field.name for field in dataclasses.fields(compared.Comparison)}
    assert comparison == fields - {"rows", "image_rows"} | {
        *("equal", "first", "layers", "calls", "culprits")
    }
    said = {name: part["const"] for name, part in DEFS["SketchForm"]["properties"].items()}
    sketch = sketch_values(np.ones(5))
    assert said == {"version": 1, "buckets": len(sketch), "dtype": sketch.dtype.name}
    text = DEFS["GoldenCall"]["properties"]["sketch"]["anyOf"][0]
    assert text["minLength"] == text["maxLength"] == len(to_text(to_bytes(sketch)))
    versions = {part["properties"]["schema_version"]["const"] for part in map(DEFS.get, NAMES)}
    assert versions == {SCHEMA_VERSION}


# --- how a user gets it


def test_the_command_prints_the_whole_schema(run):
    text = run("schema").out
    assert json.loads(text) == SCHEMA
    assert text.isascii()  # whatever the encoding of stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_that_is_cut_out_is_alone_and_says_the_same(run, documents, name):
    alone = json.loads(run("schema", name).out)
    Draft202012Validator.check_schema(alone)
    assert {each.removeprefix("#/$defs/") for each in references(alone)} == alone["$defs"].keys()
    for other, document in documents.items():
        expected = validator(name).is_valid(document)
        assert Draft202012Validator(alone).is_valid(document) == expected
        assert expected == (other == name)


def test_a_schema_is_a_dictionary_in_python(run):
    found = hookcli.schema("manifest.json")
    assert found.schema == make_schema("manifest.json")
    assert found.text() == run("schema", "manifest.json").out
    assert (found.rows, found.files, found.exit_code) == ((), {}, 0)
