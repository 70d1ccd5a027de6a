"""The commands that read finished runs: places, map, probe and similarity."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

from hookcli.cli.output import subjects
from tests.conftest import PHOTOS, run_in
from tests.toy_runs import ToyRun

VERBS = {
    "places": (),
    "map": (),
    "probe": ("--labels", "labels.csv"),
    "similarity": (),
}
PAGE, LIST = "report.html", "analysis.json"
COUNT = 20


def write_run(folder, **facts):
    """Write a run of 20 images in two classes, with a layer of maps and a layer of vectors."""
    draw = np.random.default_rng(0)
    images = {}
    for number in range(COUNT):
        maps = draw.normal(size=(1, 40, 4, 4)).astype("f4")
        maps[0, :20] += 2 * (number % 2)
        vectors = maps.mean((2, 3)) + draw.normal(scale=0.1, size=(1, 40)).astype("f4")
        images[f"photo{number:02}"] = {"conv": maps, "fc": vectors}
    parts = {key: [0.0, 0.0, 8.0, 8.0] for key in images}
    return ToyRun(images, parts=parts, **facts).write(folder)


@pytest.fixture(autouse=True)
def a_run(tmp_path):
    write_run(tmp_path / "run")
    labels = [f"photo{number:02},{'ab'[number % 2]}" for number in range(COUNT)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,label", *labels]) + "\n")


@pytest.fixture(autouse=True)
def memory():
    """A storage with nothing in it."""
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def files_of(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in Path(folder).rglob("*")
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


@pytest.mark.parametrize("verb", VERBS)
def test_the_same_command_writes_the_same_bytes_wherever_it_writes(run, verb):
    for out in ("one", "two"):
        assert run(verb, "run", *VERBS[verb], "-o", out).code == 0
    assert files_of("one") == files_of("two")


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_in_a_storage_says_the_same(run, verb):
    """Its pictures are copied, too; a run of a cluster lies there."""
    MemoryFileSystem().put("run", "/bucket/run", recursive=True)
    for source in ("run", "memory://bucket/run"):
        ended = run(verb, source, *VERBS[verb], "-o", f"to-{source[:3]}", "--format", "json")
        assert ended.code == 0, ended.err
    local, remote = (files_of(folder) for folder in ("to-run", "to-mem"))
    assert local.keys() == remote.keys()
    differ = {name for name in local if local[name] != remote[name]}
    assert differ <= {PAGE, LIST}  # they have the command
    assert b"memory://bucket/run" in remote[PAGE]


def test_two_runs_in_a_storage_are_compared(run):
    MemoryFileSystem().put("run", "/bucket/run", recursive=True)
    ended = run("similarity", *["memory://bucket/run"] * 2, "--format", "json")
    pairs = {(row["a"], row["b"]): row["cka"] for row in json.loads(ended.out)["pairs"]}
    assert pairs["conv", "conv"] == pytest.approx(1)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_speaks_five_formats(run, verb):
    words = (verb, "run", *VERBS[verb], "-o", "out", "--overwrite", "-q", "--format")
    document = json.loads(run(*words, "json").out)
    assert (document["command"][1], document["folder"]) == (verb, "out")
    assert document["runs"][0]["images"] == COUNT
    lines = [json.loads(line) for line in run(*words, "jsonl").out.splitlines()]
    rows = list(csv.DictReader(io.StringIO(run(*words, "csv").out)))
    assert len(rows) == len(lines) > 0
    assert {*rows[0]} <= {*lines[0]}
    assert run(*words, "md").out.startswith("| ")
    assert run(*words, "table").out.splitlines()[1].strip(" ─") == ""


def test_reading_a_run_loads_no_torch(tmp_path):
    commands = [["hookcli", verb, "run", *words, "-q"] for verb, words in VERBS.items()]
    code = (
        "import sys\n"
        "from hookcli.__main__ import _run\n"
        f"for sys.argv in {commands!r}: assert _run() == 0\n"
        "assert not {'torch', 'torchvision'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, capture_output=True)


def test_analyses_are_among_the_commands_of_the_help():
    assert {*subjects.SUBJECTS["Analyse a run"]} == {*VERBS}


def test_layers_are_chosen_by_their_call_ids(run):
    document = json.loads(run("similarity", "run", "--layers", "c*,fc", "--format", "json").out)
    assert [(row["a"], row["b"]) for row in document["pairs"]] == [("conv", "fc")]
    only = json.loads(run("map", "run", "--exclude", "fc", "--format", "json").out)
    assert only["layer"] == "conv"
    ended = run("map", "run", "--layers", "cnv")
    assert (ended.code, ended.err.splitlines()[0]) == (2, "error: no tensor of 'cnv' was saved")


def test_layers_without_places_are_left_out_and_said_unless_they_were_chosen(run):
    ended = run("places", "run")
    assert "left out, since they have no places: fc" in ended.err
    ended = run("places", "run", "--layers", "fc")
    assert ended.code == 2
    assert "'fc' has no places: 1x40, layout NC" in ended.err


def test_every_place_is_in_the_table_of_places(run):
    run("places", "run", "--similar", "3,5", "--image", "photo02", "-o", "out")
    table = pq.read_table("out/places.parquet").to_pylist()
    assert len(table) == COUNT * 16
    (start,) = (row for row in table if row["similarity"] > 0.99999)
    assert (start["image"], start["row"], start["column"]) == ("photo02", 2, 1)
    assert (start["x"], start["y"]) == (3, 5)


def test_a_basis_of_another_analysis_gives_its_colours(run):
    run("places", "run", "-o", "first")
    write_run(Path("other"), model={"weights": "others"})
    run("places", "other", "--basis", "first", "-o", "second")
    tables = [pq.read_table(f"{name}/places.parquet").to_pylist() for name in ("first", "second")]
    assert tables[0] == tables[1]
    ended = run("places", "other", "--basis", "run")
    assert (ended.code, ended.err.splitlines()[-2]) == (
        2,
        "error: 'run' has no basis of components",
    )


def test_matches_name_both_images_and_the_pixel(run):
    words = ("--image", "photo00", "--correspond", "photo01.png", "--at", "1,1")
    document = json.loads(run("places", "run", *words, "--format", "json").out)
    assert (document["image"], document["other"], document["point"]) == (
        "photo00",
        "photo01",
        [1, 1],
    )
    assert Path("hookcli-analyses/places-run/pictures/photo00-photo01.png").is_file()


def test_a_probe_finds_the_layer_that_knows_the_label(run):
    document = json.loads(run("probe", "run", *VERBS["probe"], "--format", "json").out)
    rows = {row["layer"]: row for row in document["layers"]}
    assert rows["conv"]["accuracy"] == 1
    assert document["classes"] == [{"label": label, "images": 10} for label in "ab"]
    assert document["chance"] == 0.5
    assert document["confusions"] == [
        {"label": "a", "predicted": "a", "images": 10},
        {"label": "b", "predicted": "b", "images": 10},
    ]


def test_a_control_run_is_probed_beside_the_layers(run):
    ended = run("probe", "run", *VERBS["probe"], "--control", "run", "--format", "json")
    rows = json.loads(ended.out)["layers"]
    assert [(row["layer"], row["control"]) for row in rows] == [
        ("conv", ""),
        ("fc", ""),
        ("conv", "run"),
        ("fc", "run"),
    ]
    assert [row["accuracy"] for row in rows[:2]] == [row["accuracy"] for row in rows[2:]]
    assert "no control of the pixels: photo00.png" in ended.err


def test_the_probe_equals_scikit_learn_on_what_export_gives(run):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    images = {}
    for number in range(COUNT):
        draw = np.random.default_rng(number)
        images[f"photo{number:02}"] = {
            name: (draw.normal(size=(1, 12)) + number % 2).astype("f4") for name in ("a", "b")
        }
    ToyRun(images, command=("--pool", "mean")).write("pooled")
    run("export", "pooled", "--to", "npy", "-o", "exported")
    document = json.loads(run("probe", "pooled", *VERBS["probe"], "--format", "json").out)
    labels = ["ab"[number % 2] for number in range(COUNT)]
    for row in document["layers"]:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        scores = cross_val_score(
            model,
            np.load(f"exported/{row['layer']}.npy"),
            labels,
            cv=StratifiedKFold(5, shuffle=True, random_state=0),
        )
        assert row["folds"] == pytest.approx(scores)


# Bad input


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("similarity", "run", "run", "run"), 2, "'run' is one run too many"),
        (("map", "run", "run"), 2, "hookcli map takes one"),
        (("map", "run", "photo.png"), 2, "'photo.png' is not"),
        (("map", "resnet18", "run"), 2, "'run' is the folder of a run, and 'resnet18' is not"),
        (("map", "norun"), 2, "there is no folder 'norun', and no image was given"),
        (("map", "run", "--device", "cpu"), 2, "--device needs a model and images"),
        (("map", "run", "--keep-run", "x"), 2, "--keep-run needs a model and images"),
        (("map", "run", "-o", "run"), 5, "'run' is a run's folder"),
        (("map", "run", "-o", "labels.csv"), 5, "'labels.csv' is a file, not a folder"),
        (("probe", "run"), 2, "Missing option '--labels'"),
        (("probe", "run", "--labels", "folders"), 2, "all 20 images have the label"),
        (("probe", "run", "--labels", "labels.csv", "--folds", "11"), 2, "fewer than the 11"),
        (("probe", "run", "--labels", "none.csv"), 2, "cannot read 'none.csv'"),
        (("probe", "run", "--labels", "labels.csv", "--pool", "class"), 2, "has no class token"),
        (("places", "run", "--similar", "9,9"), 2, "9,9 is outside 'photo00.png'"),
        (("places", "run", "--similar", "x"), 2, "--similar cannot read 'x'"),
        (("places", "run", "--correspond", "dog"), 2, "the run has no image 'dog'"),
        (("places", "run", "--at", "1,1"), 2, "--at belongs to --correspond"),
        (("similarity", "run", "--layers", "fc"), 2, "'fc' is the only layer"),
    ],
)
def test_a_request_that_cannot_be_met_ends_with_its_code_and_writes_nothing(run, words, code, said):
    before = files_of(".")
    ended = run(*words)
    assert (ended.code, said in ended.err) == (code, True), ended.err
    assert "Traceback" not in ended.err
    assert files_of(".") == before
    assert not Path("hookcli-analyses").exists()


def test_what_was_not_saved_is_named_with_the_command_that_saves_it(run):
    write_run(Path("bare"), kept="nothing")
    for verb, more in (("map", " --pool mean"), ("places", "")):
        ended = run(verb, "bare", *VERBS[verb])
        assert ended.code == 2
        assert "error: the run in 'bare' saved no tensors" in ended.err
        assert ended.err.endswith(
            f"hint: save them: hookcli inspect toy photo.png --save tensors{more}\n"
        )


def test_an_analysis_given_with_out_is_protected(run):
    assert run("map", "run", "-o", "out").code == 0
    ended = run("map", "run", "-o", "out")
    assert (ended.code, "already has an analysis" in ended.err) == (5, True)
    assert run("map", "run", "-o", "out", "--overwrite").code == 0
    assert run("map", "run").code == run("map", "run").code == 0  # the default folder is replaced


# A model in place of a run

SMALL = ("--weights", "random", "--size", "64", "--device", "cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for name in ("cat.png", "coffee.png", "astronaut.png", "camera.png"):
        with Image.open(PHOTOS / name) as photo:
            photo.convert("RGB").resize((96, 80)).save(folder / name)
    return folder


@pytest.mark.parametrize("verb", ["places", "map", "similarity"])
def test_a_model_is_run_first_and_the_run_is_kept_only_on_request(tmp_path, photos, verb):
    words = (verb, "squeezenet1_1", photos, *SMALL, "--layers", "features.3,features.4", "-q")
    ended = run_in(tmp_path, *words, "--keep-run", "kept")
    assert ended.code == 0, ended.err
    first = files_of(f"{tmp_path}/hookcli-analyses/{verb}-squeezenet1_1-{photos.name}")
    assert (tmp_path / "kept/manifest.json").is_file()
    shutil.rmtree(tmp_path / "kept")
    again = run_in(tmp_path, *words)
    assert files_of(f"{tmp_path}/hookcli-analyses/{verb}-squeezenet1_1-{photos.name}") == first
    assert (again.code, again.out) == (0, ended.out)
    assert not (tmp_path / "kept").exists()


def test_a_run_of_a_model_saves_just_what_the_question_needs(tmp_path, photos):
    words = ("squeezenet1_1", photos, *SMALL, "--layers", "features.3", "-q")
    shapes = {}
    for verb in ("places", "map"):
        run_in(tmp_path, verb, *words, "--keep-run", verb)
        index = json.loads((tmp_path / verb / "tensors/index.json").read_text())
        shapes[verb] = index["calls"]["features.3"][0]["shape"]
        assert not (tmp_path / verb / "grids").exists()
    assert shapes == {"places": [4, 128, 15, 15], "map": [4, 128]}


def test_a_pixel_of_a_photo_is_found_in_what_the_network_saw(tmp_path, photos):
    words = ("places", "squeezenet1_1", photos / "cat.png", *SMALL, "--layers", "features.3")
    document = json.loads(
        run_in(tmp_path, *words, "--similar", "48,40", "--format", "json", "-q").out
    )
    (row,) = document["images"]
    assert (row["rows"], row["columns"]) == (15, 15)
    cut = run_in(tmp_path, *words, "--similar", "1,1")
    assert (cut.code, "is cut away: the network saw the pixels from 13,4 to 84,75" in cut.err) == (
        2,
        True,
    )


def test_skipped_images_are_left_out_and_end_with_6(tmp_path, photos):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    words = (photos, "broken.png", *SMALL, "--layers", "features.3", "-q")
    assert run_in(tmp_path, "map", "squeezenet1_1", *words).code == 6
