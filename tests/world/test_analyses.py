"""The commands that read finished runs: places, map, probe and similarity."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

from hookcli.reading.load import load_run
from tests.conftest import PHOTOS, run_in
from tests.processes import forget, start
from tests.store.locations.test_remote_folder import memory  # noqa: F401
from tests.toy_runs import ToyRun, edit_json

VERBS = {
    "places": (),
    "map": (),
    "probe": ("--labels", "labels.csv"),
    "similarity": (),
}
PAGE, LIST = "report.html", "analysis.json"
COUNT = 20


def write_run(folder, seed=0, numbers=range(COUNT), apart=2, **facts):
    """Write a run of images in two classes, with a layer of maps and a layer of vectors."""
    draw = np.random.default_rng(seed)
    images = {}
    for number in numbers:
        maps = draw.normal(size=(1, 40, 4, 4)).astype("f4")
        maps[0, :20] += apart * (number % 2)
        vectors = maps.mean((2, 3)) + draw.normal(scale=0.1, size=(1, 40)).astype("f4")
        images[f"photo{number:02}"] = {"conv": maps, "fc": vectors}
    parts = {key: [0.0, 0.0, 8.0, 8.0] for key in images}
    return ToyRun(images, parts=parts, **facts).write(folder)


@pytest.fixture(autouse=True)
def a_run(tmp_path):
    write_run(tmp_path / "run")
    labels = [f"photo{number:02},{'ab'[number % 2]}" for number in range(COUNT)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,label", *labels]) + "\n")


def read_page(name):
    return Path("hookcli-analyses", name, PAGE).read_text()


def files_of(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in Path(folder).rglob("[!.]*")
        if file.is_file()
    }


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_writes_a_folder_with_a_page_and_tables(run, verb):
    ended = run(verb, "run", *VERBS[verb])
    folder = Path(f"hookcli-analyses/{verb}-run")
    assert ended.code == 0, ended.err
    assert f"open first: {folder / PAGE}" in ended.err
    listed = json.loads((folder / LIST).read_text())
    assert {LIST, *listed["files"]} == files_of(folder).keys()
    assert listed["command"] == ["hookcli", verb, "run", *VERBS[verb]]
    assert "NOT TRAINED" in ended.out
    assert "Not trained" in (folder / PAGE).read_text()


def test_a_map_names_images_by_their_paths_and_such_names_are_understood(run):
    write_run("four", numbers=range(4))
    names = ["a/0.png", "a/1.png", "b/0.png", "b/1.png"]
    facts = zip(load_run("four").manifest["images"], names, strict=True)
    edit_json(Path("four/manifest.json"), images=[i | {"file": f"photos/{n}"} for i, n in facts])
    Path("labels.csv").write_text("\n".join(["image,label", *(f"{name},x" for name in names)]))
    assert run("map", "four", "--labels", "labels.csv").out.count("b/1.png   x ") == 1
    text = Path("hookcli-analyses/map-four/map.csv").read_text()
    assert all(f"\n{name},x," in text for name in names)
    assert " b/1.png " in run("places", "four", "--similar", "1,1", "--image", "b/1.png").out


@pytest.mark.parametrize("verb", ["places", "probe"])
def test_a_run_in_a_storage_says_the_same(run, verb):
    """Its pictures are copied, too; a run of a cluster lies there."""
    MemoryFileSystem().put("run", "/bucket/run", recursive=True)
    for source in ("run", "memory://bucket/run"):
        ended = run(verb, source, *VERBS[verb], "-o", f"to-{source[:3]}", "--format", "json")
        assert ended.code == 0, ended.err
    local, remote = (files_of(folder) for folder in ("to-run", "to-mem"))
    assert b"memory://bucket/run" in remote[PAGE]
    for name in (PAGE, LIST):  # they have the command
        remote[name] = remote[name].replace(b"memory://bucket/run", b"run")
    assert local == remote


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_the_same_rows_in_two_formats(run, verb):
    words = (verb, "run", *VERBS[verb], "-o", "out", "--overwrite", "-q", "--format")
    lines = [json.loads(line) for line in run(*words, "jsonl").out.splitlines()]
    rows = list(csv.DictReader(io.StringIO(run(*words, "csv").out)))
    assert len(rows) == len(lines) > 0
    assert {*rows[0]} <= {*lines[0]}


def test_reading_a_run_loads_no_torch():
    verbs = ("places", "similarity")
    commands = [["hookcli", verb, "run", *VERBS[verb], "-q"] for verb in verbs]
    code = (
        f"{forget('torch', 'torchvision', 'hookcli')}"
        "from hookcli.__main__ import _run\n"
        f"for sys.argv in {commands!r}: assert _run() == 0\n"
        "assert not {'torch', 'torchvision'} & {*sys.modules}\n"
    )
    running = start(code)
    running.join()
    assert running.exitcode == 0


def test_layers_are_chosen_by_their_call_ids(run):
    document = json.loads(run("similarity", "run", "--layers", "c*,fc", "--format", "json").out)
    assert [(row["a"], row["b"]) for row in document["pairs"]] == [("conv", "fc")]
    only = json.loads(run("map", "run", "--exclude", "fc", "--format", "json").out)
    assert only["layer"] == "conv"
    ended = run("map", "run", "--layers", "cnv")
    assert (ended.code, ended.err.splitlines()[0]) == (2, "error: no tensor of 'cnv' was saved")


def test_layers_without_places_are_left_out_and_said_unless_they_were_chosen(run):
    ended = run("places", "run")
    assert "left out, since they have no places: fc" in ended.out
    assert "Left out, since they have no places: <code>fc</code>" in read_page("places-run")
    ended = run("places", "run", "--layers", "fc")
    assert ended.code == 2
    assert "'fc' has no places: 1x40, layout NC" in ended.err


def test_labels_may_have_any_characters(run):
    labels = [f'photo{number:02},"{("<b>", "50%41 $x_1$")[number % 2]}"' for number in range(COUNT)]
    Path("odd.csv").write_text("\n".join(["image,label", *labels]))
    for verb in ("map", "probe"):
        assert run(verb, "run", "--labels", "odd.csv").code == 0
        assert "50%41 $x_1$" in read_page(f"{verb}-run")
        assert "<b>" not in read_page(f"{verb}-run").partition("<section")[2]


def test_folders_whose_names_are_not_utf_8_are_labels(run):
    facts = load_run("run").manifest["images"]
    named = [
        image | {"file": f"{('caf%E9', 'bar')[n % 2]}/{n}.png"} for n, image in enumerate(facts)
    ]
    edit_json(Path("run/manifest.json"), images=named)
    for verb in ("map", "probe"):
        ended = run(verb, "run", "--labels", "folders")
        assert ended.code == 0, ended.err
    table = Path("hookcli-analyses/probe-run/predictions.csv").read_text()
    assert {row["label"] for row in csv.DictReader(io.StringIO(table))} == {r"caf\udce9", "bar"}


def test_a_control_run_is_probed_beside_the_layers(run):
    write_run(Path("other"), seed=1, apart=0)
    alone = json.loads(run("probe", "other", *VERBS["probe"], "--format", "json").out)["layers"]
    ended = run("probe", "run", *VERBS["probe"], "--control", "other", "--format", "json")
    rows = json.loads(ended.out)["layers"]
    assert [(row["layer"], row["control"]) for row in rows] == [
        ("conv", ""),
        ("fc", ""),
        ("conv", "run"),
        ("fc", "run"),
    ]
    assert [row["folds"] for row in rows[2:]] == [row["folds"] for row in alone]
    assert [row["folds"] for row in rows[2:]] != [row["folds"] for row in rows[:2]]
    assert "no control of the pixels: photo00.png" in ended.err


# Bad input


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("similarity", "run", "run", "run"), 2, "'run' is one run too many"),
        (("map", "run", "run"), 2, "hookcli map takes one"),
        (("map", "resnet18", "run"), 2, "'run' is the folder of a run, and 'resnet18' is not"),
        (("map", "norun"), 2, "there is no folder 'norun', and no image was given"),
        (("map", "run", "--device", "cpu"), 2, "--device needs a model and images"),
        (("map", "run", "-o", "run"), 5, "'run' is a run's folder"),
        (("probe", "run"), 2, "Missing option '--labels'"),
        (("probe", "run", "--labels", "labels.csv", "--folds", "11"), 2, "fewer than the 11"),
        (("places", "run", "--similar", "9,9"), 2, "9,9 is outside 'photo00.png'"),
        (("places", "run", "--at", "1,1"), 2, "--at belongs to --correspond"),
        (("similarity", "run", "--layers", "fc"), 2, "'fc' is the only layer"),
        (("similarity", "run", "other"), 2, "the runs have no image in common"),
        (("similarity", "run", "--exclude", "*"), 2, "--exclude leaves no layer"),
        (("probe", "run", *VERBS["probe"], "--control", "./run"), 2, "is the run itself"),
        (("map", "net", "a.png", "--keep-run", "run"), 5, "'run' already has files"),
        (("map", "net", "a.png", "--keep-run", "x", "-o", "x"), 5, "cannot both be in 'x'"),
        (
            ("places", "hostile", "-o", "x/y/z"),
            2,
            "names a file outside its folder: 'pictures/../../../EVIL",
        ),
        (("map", "damaged"), 2, "cannot read 'damaged/manifest.json'"),
    ],
)
def test_a_request_that_cannot_be_met_ends_with_its_code_and_writes_nothing(run, words, code, said):
    if "other" in words:
        write_run(Path("other"), numbers=range(30, 40))
    elif "hostile" in words:
        maps = np.random.default_rng(0).normal(size=(4, 1, 40, 4, 4)).astype("f4")
        keys = ("../../../EVIL", "b", "c", "d")
        ToyRun({key: {"conv": each} for key, each in zip(keys, maps, strict=True)}).write("hostile")
    elif "damaged" in words:
        write_run(Path("damaged"), command=("--pool", "half"))
    before = files_of(".")
    ended = run(*words)
    assert (ended.code, said in ended.err) == (code, True), ended.err
    assert "Traceback" not in ended.err
    assert files_of(".") == before
    assert not Path("hookcli-analyses").exists()


# A model in place of a run

SMALL = ("--weights", "random", "--size", "64", "--device", "cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for name in ("cat.png", "coffee.png", "astronaut.png", "camera.png"):
        with Image.open(PHOTOS / name) as photo:
            photo.convert("RGB").resize((96, 80)).save(folder / name)
    return folder


MODEL = "tests.toy_models:Squeezed"


@pytest.mark.parametrize("verb", ["places", "map", "similarity"])
def test_a_model_is_run_first_and_the_run_is_kept_only_on_request(tmp_path, photos, verb):
    words = (verb, MODEL, photos, *SMALL, "--layers", "features.0,features.3", "-q", "-o", "out")
    ended = run_in(tmp_path, *words, "--keep-run", "kept")
    assert ended.code == 0, ended.err
    first = files_of(tmp_path / "out")
    assert (tmp_path / "kept/manifest.json").is_file()
    shutil.rmtree(tmp_path / "kept")
    again = run_in(tmp_path, *words, "--overwrite")
    assert files_of(tmp_path / "out") == first
    assert (again.code, again.out) == (0, ended.out)
    assert not (tmp_path / "kept").exists()


def test_a_run_of_a_model_saves_just_what_the_question_needs(tmp_path, photos):
    words = (MODEL, photos, *SMALL, "--layers", "features.3", "-q")
    shapes = {}
    for verb in ("places", "map"):
        run_in(tmp_path, verb, *words, "--keep-run", verb)
        index = json.loads((tmp_path / verb / "tensors/index.json").read_text())
        shapes[verb] = index["calls"]["features.3"][0]["shape"]
        assert not (tmp_path / verb / "grids").exists()
    assert shapes == {"places": [4, 16, 15, 15], "map": [4, 16]}


def test_missing_images_are_said_before_the_model_runs(tmp_path, photos):
    one = photos / "cat.png"
    for verb, more, said in (
        ("map", (), "hookcli map needs at least 3 images, not 1"),
        ("places", ("--correspond", "dog.png"), "the run has no image 'dog.png'"),
    ):
        words = (verb, MODEL, one, *SMALL, *more, "--keep-run", "kept")
        ended = run_in(tmp_path, *words)
        assert ended.code == 2
        assert said in ended.err
        assert not (tmp_path / "kept").exists()


def test_the_map_of_a_model_is_that_of_its_features(tmp_path, photos):
    ended = run_in(tmp_path, "map", "resnet18", photos, *SMALL, "--format", "json")
    document = json.loads(ended.out)
    assert (document["layer"], document["features"]) == ("avgpool", 512)
    assert document["reason"] == "what the head, fc, takes"
    assert "map: avgpool (what the head, fc, takes), 4 images" in ended.err


def test_a_run_knows_which_of_its_layers_has_the_features(tmp_path, photos):
    words = ("inspect", "resnet18", photos, *SMALL, "--save", "tensors", "--pool", "mean", "-q")
    assert run_in(tmp_path, *words, "--layers", "conv,linear,layer4", "-o", "two").code == 0
    document = json.loads(run_in(tmp_path, "map", "two", "--format", "json").out)
    reason = "the last of the layers that ran before fc"
    assert (document["layer"], document["reason"]) == ("layer4", reason)


def test_a_probe_of_a_model_is_after_its_activations_and_ends_with_a_verdict(tmp_path, photos):
    labels = "image,label\n" + "".join(
        f"{file.name},{'ab'[number % 2]}\n" for number, file in enumerate(sorted(photos.iterdir()))
    )
    (tmp_path / "labels.csv").write_text(labels)
    words = ("--labels", "labels.csv", "--folds", "2", "--format", "json")
    ended = run_in(tmp_path, "probe", MODEL, photos, *SMALL, *words)
    document = json.loads(ended.out)
    layers = [row["layer"] for row in document["layers"]]
    assert (layers[0], layers[-2:]) == ("features.1", ["classifier.2", "pixels"])
    assert document["verdict"].startswith("no layer is clearly above ")


def test_a_pixel_of_a_photo_is_found_in_what_the_network_saw(tmp_path, photos):
    words = ("places", MODEL, photos / "cat.png", *SMALL, "--layers", "features.3")
    document = json.loads(
        run_in(tmp_path, *words, "--similar", "48,40", "--format", "json", "-q").out
    )
    (row,) = document["images"]
    assert (row["rows"], row["columns"]) == (15, 15)
    cut = run_in(tmp_path, *words, "--similar", "1,1")
    assert (cut.code, "is cut away: the network saw the pixels from 13,4 to 83,74" in cut.err) == (
        2,
        True,
    )
