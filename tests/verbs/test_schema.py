"""The JSON Schema made from types: true of what every command prints, and of nothing else."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from PIL import Image

import hookcli
from hookcli.__main__ import _run
from hookcli.distance.sketch import sketch_values, to_bytes, to_text
from hookcli.networks.tasks import TASKS
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
COMMANDS = {
    "both sides": f"inspect net.py:Net {OWN} text.png --layers all --at both",
    "boxes": f"inspect net.py:Boxes {OWN}",
    "shares of the image": f"inspect net.py:Masks {OWN}",
    "flow": f"inspect net.py:Flow {OWN}",
    "edits": f"inspect net.py:Net {OWN} --edit conv:set=nan --prune fc=0.5 --layers leaf",
    "a sheet of a folder": f"inspect {SQUEEZE} --grids sheet --overview --focus 150,110,60,60",
    "gradients of NaN": f"gradients net.py:Net {OWN} text.png --layers leaf",
    "heat maps": f"gradients {SQUEEZE} --cam features.3 --saliency --layers conv[-1]",
    "attention": f"{LOOKS} --layers leaf --attention all --rollout",
    "channels of NaN": f"ablate net.py:Net {OWN}",
    "the same twice": f"compare net.py:Net pixels.npy text.png {CPU} --against threads=1",
    "a survey": "layers net.py:Net",
    "models": "models resnet*",
}


@pytest.fixture(autouse=True)
def inputs():
    write_inputs()


def write_inputs():
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


RUN_FILES = ("run.json", "manifest.json", "report.json")


def read(folder, name):
    return json.loads(Path(folder, name).read_text())


@pytest.mark.parametrize(
    "what",
    ["both sides", "gradients of NaN", "channels of NaN", "a survey", "models"],
)
def test_a_line_of_jsonl_is_as_the_schema_says(run, what):
    words = COMMANDS[what].split()
    lines = run(*words, "--format", "jsonl").out.splitlines()
    assert [faults(f"{words[0]}.jsonl", json.loads(line)) for line in lines] == [[]] * len(lines)
    assert lines


def test_what_report_and_export_print_is_as_the_schema_says(run):
    saved = "--save tensors --tensor-channels 1 -o out"
    run(*f"inspect net.py:Net {OWN} {saved}".split())
    assert faults("index.json", read("out/tensors", "index.json")) == []
    export = ("export", "out", "--to", "csv", "--overwrite", "--format")
    assert faults("export", json.loads(run(*export, "json").out)) == []
    for line in run(*export, "jsonl").out.splitlines():
        assert faults("export.jsonl", json.loads(line)) == []
    assert faults("report", json.loads(run("report", "out", "--format", "json").out)) == []
    assert faults("report.jsonl", json.loads(run("report", "out", "--format", "jsonl").out)) == []


def test_what_golden_and_diff_print_is_as_the_schema_says(run):
    sketched = f"inspect net.py:Net {OWN} text.png --layers all --sketch -o"
    for words in (
        f"{sketched} one",
        f"{sketched} edited --edit conv{{0}}:set=0.5",
        f"inspect net.py:Net pixels.npy {CPU} --layers leaf --sketch -o fewer",
        "golden one -o golden.json",
    ):
        run(*words.split())
    assert faults("golden", read(".", "golden.json")) == []
    for words in (
        "one edited --layer-tolerance conv*=0.5 --atol 0.1",
        "one fewer --metric cosine",
        "golden.json edited",
    ):
        assert faults("diff", json.loads(run("diff", *words.split(), "--format", "json").out)) == []
    lines = run("diff", "one", "edited", "--format", "jsonl").out.splitlines()
    assert [faults("diff.jsonl", json.loads(line)) for line in lines] == [[]] * len(lines)
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
    draw = np.random.default_rng(0)
    maps = draw.normal(size=(count, 1, 32, 4, 4)).astype("f4")
    maps[1] = maps[0]
    images = {f"photo{n}": {"conv1": maps[n], "conv2": -(maps[n] ** 2)} for n in range(count)}
    ToyRun(images, parts={key: [0, 0, 8, 8] for key in images}).write(folder)
    return list(images)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("inspect", ("schema_version",), 2),
        ("inspect", ("command", 1), "gradients"),
        ("inspect", ("layers", 0, "mean"), "0.5"),
        ("inspect", ("layers", 0, "order"), -1),
        ("inspect", ("layers", 0, "zero_fraction"), 1.5),
        ("inspect", ("layers", 0, "nan_count"), None),
        ("inspect", ("layers", 0, "side"), "left"),
        ("inspect", ("images", 0, "sha256"), "ff"),
        ("golden", ("kind",), "silver"),
        ("golden", ("calls", 0, "sketch"), "AAAA"),
        ("diff", ("tolerance", "layers"), [["conv"]]),
        ("manifest.json", ("files",), ["run.json", "run.json"]),
    ],
)
def test_a_value_of_another_kind_is_refused(documents, name, path, value):
    wrong = part = copy.deepcopy(documents[name])
    *way, last = path
    for step in way:
        part = part[step]
    part[last] = value
    assert wrong != documents[name]
    assert not validator(name).is_valid(wrong)


def test_the_whole_schema_takes_every_document_and_no_others(documents):
    whole = Draft202012Validator(SCHEMA)
    assert [name for name, document in documents.items() if not whole.is_valid(document)] == []
    assert not whole.is_valid({})
    assert not whole.is_valid({"schema_version": 1})


# --- the schema itself


def test_the_schema_is_a_valid_json_schema():
    Draft202012Validator.check_schema(SCHEMA)


def test_every_part_of_the_schema_is_there_and_needed():
    assert references(SCHEMA) == DEFS.keys()


def references(schema):
    return {*re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(schema))}


def test_a_document_that_lacks_a_field_or_has_one_more_is_refused():
    parts = {name: part for name, part in DEFS.items() if "properties" in part}
    assert [name for name, part in parts.items() if part["additionalProperties"]] == []
    sometimes = {
        (name, field)
        for name, part in parts.items()
        for field in part["properties"].keys() - set(part["required"])
    }
    in_memory = {(name, "options") for name in (*RUN_FILES, "golden")}
    computed = set(itertools.product(("inspect", "gradients"), ("attention", "cams")))
    others = {("manifest.json", "sizes"), ("GoldenCall", "reason"), ("SavedTensor", "channels")}
    others |= {("Score", "box"), ("HeatPicture", "box")}
    others |= {
        ("ImageResult", name)
        for name in ("part", "intensities", "other_scores", "other_unedited_scores")
    }
    figures = {"seconds", "own_seconds", "backward_seconds", "batch_output_mb", "workspace_mb"}
    figures |= {"peak_mb", "flops_per_second", "bound"}
    measured = set(itertools.product(("SurveyRow", "layers.jsonl"), figures))
    assert sometimes == computed | others | in_memory | measured | {("layers", "measured")}


def test_every_object_and_every_field_says_what_it_is():
    parts = {name: each for name, each in DEFS.items() if "properties" in each}
    assert [name for name, part in parts.items() if not part["description"]] == []
    assert [
        (name, field)
        for name, part in parts.items()
        for field, said in part["properties"].items()
        if not said["description"].endswith(".") or "  " in said["description"]
    ] == []


def test_the_choices_are_those_of_the_code():
    assert DEFS["Finding"]["properties"]["rule"]["enum"] == list(RULES)
    tasks = DEFS["CatalogEntry"]["properties"]["task"]["enum"]
    assert sorted(tasks) == sorted({*(task.word for task in TASKS), "depth", "features"})
    said = {name: part["const"] for name, part in DEFS["SketchForm"]["properties"].items()}
    sketch = sketch_values(np.ones(5))
    assert said == {"version": 1, "buckets": len(sketch), "dtype": sketch.dtype.name}
    text = DEFS["GoldenCall"]["properties"]["sketch"]["anyOf"][0]
    assert text["minLength"] == text["maxLength"] == len(to_text(to_bytes(sketch)))


# --- how a user gets it


def test_the_command_prints_the_whole_schema(run):
    text = run("schema").out
    assert json.loads(text) == SCHEMA
    assert text.isascii()  # whatever the encoding of stdout


@pytest.mark.parametrize("name", ["inspect", "golden", "manifest.json"])
def test_a_schema_that_is_cut_out_is_alone_and_says_the_same(run, documents, name):
    alone = json.loads(run("schema", name).out)
    Draft202012Validator.check_schema(alone)
    assert references(alone) == alone["$defs"].keys()
    for other, document in documents.items():
        assert Draft202012Validator(alone).is_valid(document) == (other == name)


def test_a_schema_is_a_dictionary_in_python(run):
    found = hookcli.schema("manifest.json")
    assert found.schema == make_schema("manifest.json")
    assert found.text() == run("schema", "manifest.json").out
    assert (found.rows, found.files, found.exit_code) == ((), {}, 0)
