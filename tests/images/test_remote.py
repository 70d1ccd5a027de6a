"""Images at URLs: which files they mean, and that they are those of the same files here."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hookcli.errors import OutputError, RequestError
from hookcli.images import remote
from hookcli.images.find import find_files
from hookcli.images.prepare import _begin_worker
from hookcli.images.read import file_state, read_images
from hookcli.outside.urls import Url
from hookcli.store.locations import storage
from tests.store.locations.test_remote_folder import memory  # noqa: F401

PHOTOS = "memory://bucket/photos"
TREE = ["b.png", "a.jpg", "a-1/x.png", "a/y.png", ".hidden.png", ".git/z.png", "notes.txt"]


def put(name, data=b"x"):
    storage.write_file(f"{PHOTOS}/{name}", data)


def picture(seed=0):
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 12, 3), dtype=np.uint8)).save(
        stream, "png"
    )
    return stream.getvalue()


def found(*words, **how):
    files, skipped = find_files(words, **how)
    return [file.removeprefix(f"{PHOTOS}/") for file in files], [each.reason for each in skipped]


def test_a_folder_means_the_images_in_it_in_the_order_of_a_folder_here(tmp_path):
    for name in TREE:
        put(name)
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x")
    files, _ = find_files([str(tmp_path)])
    here = [Path(file).relative_to(tmp_path).as_posix() for file in files]
    assert found(PHOTOS) == (here, [])
    assert found(f"{PHOTOS}/") == (here, [])
    assert found(PHOTOS, recursive=False) == (["a.jpg", "b.png"], [])


def test_a_question_mark_is_a_pattern_in_a_bucket_and_a_query_in_a_web_page(monkeypatch):
    monkeypatch.setattr(remote, "check", lambda _: None)  # it asks for the package of https
    put("a1.png")
    assert remote.is_pattern(f"{PHOTOS}/a?.png")
    assert not remote.is_pattern(f"{PHOTOS}/a1.png")
    assert not remote.is_pattern("https://example.org/a.png?size=9")


@pytest.mark.usefixtures("small_parts")
def test_the_chunks_of_a_run_over_a_folder_at_a_url_are_saved(run):
    """Ten images are chunks of eight and two, which hold the names of their images."""
    for number in range(10):
        put(f"{number}.png", picture(number))
    words = ("--layers", "features.0", "--device", "cpu", "--grids", "none", "--workers", "0")
    ended = run("inspect", "tests.toy_models:Squeezed", PHOTOS, *words, "-o", "out")
    assert ended.code == 0, ended.err
    images = json.loads(Path("out/manifest.json").read_text())["images"]
    assert [image["file"] for image in images] == [f"{PHOTOS}/{n}.png" for n in range(10)]


def test_a_glob_means_what_matches_it():
    for name in TREE:
        put(name)
    assert found(f"{PHOTOS}/*.png") == (["b.png"], [])
    assert found(f"{PHOTOS}/a*/*.png") == (["a/y.png", "a-1/x.png"], [])
    assert found(f"{PHOTOS}/c*") == ([], ["matches no file"])


def test_a_glob_leaves_the_folders_of_runs_out_and_takes_each_image_once(tmp_path):
    run = b'{"hookcli": "0.1.0", "command": ["hookcli", "inspect"]}'
    names = {
        "a/x.png": b"x",
        "run/run.json": run,
        "run/seen/a.jpg": b"x",
        "run/grids/a/b.png": b"x",
    }
    for name, data in names.items():
        put(name, data)
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    for pattern in ("**", "**/*.png", "**/*.jpg", "*", "*/*/*.png", "run/*/*.jpg"):
        files, skipped = find_files([pattern])
        assert found(f"{PHOTOS}/{pattern}") == (files, [each.reason for each in skipped])
    out = Url(f"{PHOTOS}/a")
    assert found(f"{PHOTOS}/*/*.png", leave_out=out) == ([], ["matches no file"])


def test_the_folders_of_runs_are_left_out():
    put("a.png")
    put("run/run.json", b'{"hookcli": "0.1.0", "command": ["hookcli", "inspect"]}')
    put("run/seen/a.jpg")
    put("other/run.json", b"of another tool")
    put("other/b.png")
    assert found(PHOTOS) == (["a.png", "other/b.png"], [])
    assert found(f"{PHOTOS}/run") == ([], ["is the folder of a run; name a folder inside it"])
    out = Url(f"{PHOTOS}/other")
    assert found(PHOTOS, leave_out=out) == (["a.png"], [])
    assert found(str(out), leave_out=out) == ([], ["is the folder that this run writes to"])


def test_urls_are_in_lists_too(tmp_path):
    put("a.png")
    (tmp_path / "list").write_text(f"{PHOTOS}/a.png\n{PHOTOS}\n")
    assert found(f"@{tmp_path / 'list'}") == (["a.png", "a.png"], [])


def test_a_list_may_be_at_a_url():
    put("a.png")
    put("list", f"{PHOTOS}/a.png\n".encode())
    assert found(f"@{PHOTOS}/list") == (["a.png"], [])
    with pytest.raises(RequestError, match="cannot read the list"):
        found(f"@{PHOTOS}/none")


def test_a_file_url_is_a_file_of_this_machine(tmp_path):
    file = tmp_path / "a b.png"
    file.write_bytes(b"x")
    assert find_files([f"file://{tmp_path}"]) == ([str(file)], [])
    assert find_files([file.as_uri()]) == ([str(file)], [])
    (tmp_path / "list").write_text(file.as_uri())
    assert find_files([f"@{tmp_path}/list"]) == ([str(file)], [])


def test_an_image_at_a_url_is_that_of_the_file_here(tmp_path):
    put("a.png", picture())
    (tmp_path / "a.png").write_bytes(picture())
    (there,), _ = read_images([f"{PHOTOS}/a.png"])
    (here,), _ = read_images([str(tmp_path / "a.png")])
    assert there.file == f"{PHOTOS}/a.png"
    assert there.key == here.key
    one, two = there.read(), here.read()
    assert (one.sha256, one.size) == (two.sha256, two.size)
    assert one.pictures[0].tobytes() == two.pictures[0].tobytes()


def test_numbers_in_names_at_urls_count_as_numbers():
    names = ["day2/1.png", "day2/11.png", "day10/9.png", "day10/10.png"]
    for name in names:
        put(name)
    assert found(PHOTOS) == found(f"{PHOTOS}/*/*.png") == found(f"{PHOTOS}/*") == (names, [])


def test_a_folder_of_frames_at_a_url_is_a_clip():
    for number in range(3):
        put(f"clip/{number}.png", picture(number))
    put("clip/.hidden", b"")
    (clip,), _ = read_images([f"{PHOTOS}/clip"], clip_frames=2)
    assert (clip.key, clip.read().frame_count, len(clip.read().pictures)) == ("clip", 3, 2)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.png", b"", "is empty"),
        ("gone.png", None, "does not exist"),
    ],
)
def test_an_image_that_cannot_be_used_is_skipped_with_the_reason(name, data, reason):
    if data is not None:
        put(name, data)
    assert [each.reason for each in read_images([f"{PHOTOS}/{name}"])[1]] == [reason]


def test_the_state_of_a_file_shows_that_it_has_changed():
    put("a.png", picture(0))
    before, read = file_state(f"{PHOTOS}/a.png"), file_state(f"{PHOTOS}/a.png", verify=True)
    put("a.png", picture(1) + b"more")
    assert file_state(f"{PHOTOS}/a.png") != before
    assert file_state(f"{PHOTOS}/a.png", verify=True).sha256 != read.sha256


@pytest.mark.parametrize("count", [1, 40])
def test_a_storage_that_cannot_be_reached_ends_the_run_and_skips_nothing(monkeypatch, count):
    for number in range(count):
        put(f"{number}.png", picture(number))

    def unreachable(_url):
        raise storage.StorageError(5, "no route to host")

    monkeypatch.setattr(storage, "read_file", unreachable)
    monkeypatch.setattr(storage, "find_state", unreachable)
    files, _ = find_files([PHOTOS])
    with pytest.raises(OutputError, match="no route to host") as caught:
        read_images(files)
    assert caught.value.exit_code == 5
    with pytest.raises(OutputError, match="no route to host"):
        file_state(files[0])


def test_a_run_here_reads_urls_and_has_the_records_of_files_here(run, tmp_path):
    (tmp_path / "photos").mkdir()
    for number in range(3):
        put(f"{number}.png", picture(number))
        (tmp_path / f"photos/{number}.png").write_bytes(picture(number))
    words = ("tests.toy_models:Squeezed", "--layers", "conv[1]", "--size", "32", "--workers")
    assert run("inspect", words[0], PHOTOS, *words[1:], "2", "-o", "there").code == 0
    assert run("inspect", words[0], "photos", *words[1:], "0", "-o", "here").code == 0
    assert Path("there/layers.csv").read_bytes() == Path("here/layers.csv").read_bytes()


def test_a_run_here_is_named_after_the_folder_of_a_url(run):
    put("a.png", picture())
    put("b.png", picture(1))
    ended = run("inspect", "squeezenet1_1", PHOTOS, "--weights", "random", "--dry-run")
    assert "into hookcli-runs/squeezenet1_1-photos" in ended.err
    ended = run("inspect", "squeezenet1_1", f"{PHOTOS}/a.png", f"{PHOTOS}/b.png", "--dry-run")
    assert "into hookcli-runs/squeezenet1_1-photos" in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((PHOTOS, "-o", "s3://bucket/run"), "without --cluster, the run folder must be local"),
        ((PHOTOS, "--cluster", "auto"), "is in the memory of one process"),
        (("ftp://me:secret@host/a.png",), "the URL on host holds a password"),
        (("nothing://host/a.png",), "cannot use 'nothing://host/a.png'"),
        (("http://host/a.png?X-Amz-Signature=secret",), "the URL on host holds a password"),
        (("s3://a[b",), "'s3://a[b' is no URL"),
        (("photo.jpg", "-o", "s3://", "--cluster", "auto"), "'s3://' names no bucket"),
    ],
)
def test_urls_that_make_no_sense_are_refused(run, monkeypatch, words, message):
    monkeypatch.setattr("hookcli.plan.check.require_package", lambda *_: None)  # Ray
    put("a.png", picture())
    ended = run("inspect", "squeezenet1_1", "--weights", "random", *words, "--dry-run")
    assert ended.code == 2
    assert message in ended.err
    assert "secret" not in ended.err


def test_storage_options_are_no_part_of_the_command(run):
    put("a.png", picture())
    words = ("--weights", "random", "--layers", "conv[1]", "--size", "32", "-o", "out")
    options = ("--storage-option", "use_listings_cache=false")
    assert run("inspect", "squeezenet1_1", f"{PHOTOS}/a.png", *words, *options).code == 0
    assert "listings" not in Path("out/manifest.json").read_text()


def test_a_process_that_prepares_images_uses_the_options_of_storages(interruptible):
    """Where processes are not forked, it begins without them."""
    storage.use_options([("anon", "true"), ("endpoint_url", "http://localhost")])
    options = storage.list_options()
    storage.use_options(())
    _begin_worker(options, 0)
    assert storage._options == {"anon": True, "endpoint_url": "http://localhost"}
    storage.use_options(())
