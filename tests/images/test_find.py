"""Words to files: folders, globs and lists of names, and keys for many files."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from PIL import Image

from hookcli.errors import RequestError
from hookcli.images.find import find_files
from hookcli.images.read import list_images
from hookcli.records.images import SkippedImage

OURS = json.dumps({"hookcli": "0.1.0", "command": ["hookcli", "inspect"]})


def make(*names):
    """Empty files, and folders where a name ends with a slash."""
    for name in names:
        path = Path(name)
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()


def found(*words, **options):
    """Return the files, and check that none is skipped."""
    files, skipped = find_files(words, **options)
    assert skipped == []
    return files


def skipped(*words, **options):
    """Return each skipped file with the reason, and check that no other file is found."""
    files, left = find_files(words, **options)
    assert files == []
    return [(each.file, each.reason) for each in left]


def refused(*words, **options):
    """Message and hint."""
    with pytest.raises(RequestError) as caught:
        find_files(words, **options)
    return caught.value.message, caught.value.hint


# files that are made, the words, and the files that they name
MADE = {
    "files in their order, whatever they are called": (
        ["b.png", "a.txt"],
        ["c.npy", "b.png", "gone.png", "a.txt", "b.png", "a\0.png"],
        ["c.npy", "b.png", "gone.png", "a.txt", "b.png", "a\0.png"],
    ),
    "the images of a folder": (
        ["p/b.png", "p/a.jpg", "p/notes.txt"],
        ["p", "./p/", "p"],
        ["p/a.jpg", "p/b.png", "./p/a.jpg", "./p/b.png", "p/a.jpg", "p/b.png"],
    ),
    "the working directory": (["a.png"], ["."], ["./a.png"]),
    "a folder that is named like an image": (
        ["p/a/b/c/d.png", "p/e.png/f.png"],
        ["p"],
        ["p/a/b/c/d.png", "p/e.png/f.png"],
    ),
    "no hidden files and folders": (
        ["p/.a.png", "p/.thumbs/c.png", "p/.png", "p/d.png", ".q/a.png"],
        ["p", ".q"],
        ["p/d.png", ".q/a.png"],
    ),
    "a folder of tensor files alone": (
        ["arrays/b.npy", "arrays/in/a.SAFETENSORS", "arrays/.c.npy", "arrays/notes.txt"],
        ["arrays"],
        ["arrays/b.npy", "arrays/in/a.SAFETENSORS"],
    ),
    "no tensor files beside images": (
        ["p/a.png", "p/model.safetensors", "p/manifest.json/b.png"],
        ["p"],
        ["p/a.png", "p/manifest.json/b.png"],
    ),
    "a star": (
        ["b.png", "a.png", "c.jpg", "a1.png", ".d.png"],
        ["*.png", "?.png"],
        ["a.png", "a1.png", "b.png", "a.png", "b.png"],
    ),
    "brackets": (["b.png", "a.png", "c.dat"], ["[bc].*"], ["b.png", "c.dat"]),
    "two stars": (
        ["p/a/z.png", "p/a-b/c.png", "p/a.png"],
        ["p/**/*.png", "p/**"],
        ["p/a/z.png", "p/a-b/c.png", "p/a.png"] * 2,
    ),
    "folders that a glob matches": (
        ["p/1/b.png", "p/2/a.png", "p/2/notes.txt"],
        ["p/*"],
        ["p/1/b.png", "p/2/a.png"],
    ),
    "the characters of a glob in a name": (
        ["[ab]/x.png", "a/y.png", "c[1].png", "c1.png"],
        ["[ab]", "c[1].png"],
        ["[ab]/x.png", "c[1].png"],
    ),
    "a name that begins with an at sign": (
        ["@x.png", "p/@y.png", "-"],
        ["./@x.png", "p", "./-"],
        ["./@x.png", "p/@y.png", "./-"],
    ),
}


@pytest.mark.parametrize("what", MADE)
def test_words_name_files_folders_and_globs(what):
    files, words, expected = MADE[what]
    make(*files)
    assert found(*words) == expected


def test_only_the_folder_itself_is_searched_if_not_recursive():
    make("photos/a/b.png", "photos/e.png", "deep/a/b.png", "arrays/b.npy", "arrays/in/a.npy")
    assert found("photos", recursive=False) == ["photos/e.png"]
    assert found("arrays", recursive=False) == ["arrays/b.npy"]
    assert skipped("deep", recursive=False) == [("deep", "is a folder without images")]


def test_the_order_is_that_of_the_parts_of_the_paths_as_bytes():
    # as whole strings, "a-b/" and "a.png" would come before "a/", since "-" and "." come before "/"
    names = ["B.png", "a/z.png", "a-b/c.png", "a.png", "b.png", "Ä.png"]
    make(*(f"photos/{name}" for name in reversed(names)))
    assert found("photos") == [f"photos/{name}" for name in names]
    names = [f"p/{a}/{b}{c}.png" for a in ("x", "x y", "x.z", "é") for b in "!_a-A" for c in "9z"]
    make(*names)
    assert found("p") == sorted(names, key=lambda name: tuple(name.encode().split(b"/")))


def test_numbers_in_the_names_of_folders_and_files_count_as_numbers():
    names = ["day2/1.png", "day2/11.png", "day10/9.png", "day10/10.png"]
    make(*(f"p/{name}" for name in names))
    Path("list").write_text("p\n")
    wanted = [f"p/{name}" for name in names]
    assert found("p") == found("p/*") == found("p/**/*.png") == found("@list") == wanted


def test_names_that_are_not_utf_8_are_found_and_sorted_by_their_bytes():
    make("photos/😀.png", "photos/z.png")  # 😀 is F0 9F 98 80; as Python's text it is after \udcff
    Path(os.fsdecode(b"photos/\xff.png")).touch()
    assert found("photos") == ["photos/z.png", "photos/😀.png", "photos/\udcff.png"]


def test_folders_are_passed_on_if_they_are_kept():
    make("clip/a.png", "empty/", "b.png")
    Path("names").write_text("empty\n")
    assert found("clip", "b.png", "@names", "c*", keep_folders=True) == [
        *("clip", "b.png", "empty", "clip"),
    ]


@pytest.mark.parametrize("suffix", ["png", "JPG", "tiff", "avif", "mpo", "heic"])
def test_an_image_is_known_by_its_suffix(suffix):
    make(f"photos/a.{suffix}")
    assert found("photos") == [f"photos/a.{suffix}"]


@pytest.mark.parametrize("name", ["a.pdf", "a.eps", "a.mpg", "a.h5", "a.txt", "png", "a.png~"])
def test_what_is_no_picture_by_its_suffix_is_left_out_of_a_folder(name):
    make(f"photos/{name}")
    assert skipped("photos") == [("photos", "is a folder without images")]


def test_links_that_lead_back_up_are_not_entered_again():
    make("photos/a/b.png", "photos/c.png")
    Path("photos/a/up").symlink_to("..")
    Path("photos/a/self").symlink_to(".")
    assert found("photos") == ["photos/a/b.png", "photos/c.png"]


def test_a_folder_with_two_names_is_visited_once_under_the_first_of_them():
    make("photos/m/a.png")
    Path("photos/b").symlink_to("m")
    Path("photos/z").symlink_to("m")
    assert found("photos") == ["photos/b/a.png"]


def test_a_link_to_nowhere_or_itself_is_passed_on_if_it_has_an_images_name():
    make("photos/", "a1.png")
    Path("photos/a.png").symlink_to("gone.png")
    Path("photos/b").symlink_to("gone")
    Path("photos/c.png").symlink_to("c.png")
    Path("a?.png").symlink_to("gone")
    assert found("photos", "a?.png") == ["photos/a.png", "photos/c.png", "a?.png"]


def test_a_folder_in_a_folder_that_cannot_be_read_is_skipped_and_the_rest_is_found():
    make("photos/a.png", "photos/c.png")
    Path("photos/b").symlink_to("b")  # a link to itself: following it is an error, even for root
    assert find_files(["photos"]) == (
        ["photos/a.png", "photos/c.png"],
        [SkippedImage("photos/b", "cannot be read: Too many levels of symbolic links")],
    )


def test_the_output_folder_is_left_out_whatever_its_name(tmp_path):
    make("photos/a.png", "photos/out/b.png")
    Path("link").symlink_to("photos/out")
    for out in ("photos/out", "link", tmp_path / "photos" / ".." / "photos" / "out"):
        assert found("photos", leave_out=Path(out)) == ["photos/a.png"]
    assert found("photos", leave_out=Path("photos/none")) == ["photos/a.png", "photos/out/b.png"]


def test_the_output_folder_as_a_word_is_skipped_with_the_reason():
    make("out/a.png")
    assert skipped("out", leave_out=Path("out")) == [
        ("out", "is the folder that this run writes to")
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [("run.json", OURS), ("manifest.json", json.dumps(json.loads(OURS) | {"files": []}))],
)
def test_the_folder_of_a_run_is_left_out_with_all_that_is_in_it(name, content):
    make("photos/a.png", "photos/run/overview.png", "photos/run/grids/x/b.png")
    Path("photos/run", name).write_text(content)
    assert found("photos") == ["photos/a.png"]
    assert skipped("photos/run") == [
        ("photos/run", "is the folder of a run; name a folder inside it")
    ]
    assert found("photos/run/grids") == ["photos/run/grids/x/b.png"]


@pytest.mark.parametrize("name", ["run.json", "manifest.json"])
@pytest.mark.parametrize("text", ["", '{"lr": 0.1}', '{"hookcli": "0.1.0"}', "\xff", "[" * 100_000])
def test_a_document_of_another_tool_leaves_nothing_out(name, text):
    make("photos/app/a.png")
    Path("photos/app", name).write_text(text, encoding="latin-1")
    assert found("photos") == found("photos/*/*.png") == ["photos/app/a.png"]


def test_a_pipe_called_like_a_manifest_is_not_waited_for():
    make("photos/a.png")
    os.mkfifo("photos/manifest.json")
    os.mkfifo("photos/run.json")
    assert found("photos") == ["photos/a.png"]


def test_below_its_first_star_a_glob_leaves_out_runs_and_the_output_folder():
    make("p/a.png", "p/run/seen/b.png", "p/out/deep/c.png")
    Path("p/run/run.json").write_text(OURS)
    assert found("p/**/*.png") == ["p/a.png", "p/out/deep/c.png"]
    assert found("p/**/*.png", leave_out=Path("p/out")) == ["p/a.png"]


@pytest.mark.parametrize("word", ["run/seen/*", "run/see?/a.png"])
def test_what_a_glob_names_before_its_first_star_may_be_a_run(word):
    make("run/seen/a.png")
    Path("run/run.json").write_text(OURS)
    assert found(word) == ["run/seen/a.png"]


def test_a_glob_that_matches_nothing_is_skipped_with_the_reason():
    make("photos/")
    assert skipped("photos/*.png") == [("photos/*.png", "matches no file")]
    assert skipped("a\0/*") == [("a\0/*", "matches no file")]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (
            b"z.png\n\ngone.png\r\nphotos\n a .txt\n10.png\n9.png",
            ["z.png", "gone.png", "photos/b.png", " a .txt", "10.png", "9.png"],
        ),
        (b"\xef\xbb\xbfa.png\r\nb.png\r\n", ["a.png", "b.png"]),  # Windows puts a mark before it
        (b"*.png\n@more.txt\n-\n?.png\n", ["*.png", "@more.txt", "-", "?.png"]),
    ],
)
def test_a_list_is_a_name_a_line_of_a_file_or_folder_and_no_glob(content, names):
    make("photos/b.png", "lists/", "a.png")
    Path("lists/names.txt").write_bytes(content)
    assert found("@lists/names.txt") == names


def test_standard_input_is_that_of_the_process_unless_given(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"b.png\n\xff.png\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert found("a.png", "-", "d.png") == ["a.png", "b.png", "\udcff.png", "d.png"]


def test_names_in_a_list_may_have_a_nul_between_them_and_newlines_in_them():
    Path("names").write_bytes(b"a\nb.png\0c.png\r\0\0d.png")
    assert found("@names", null_separated=True) == ["a\nb.png", "c.png\r", "d.png"]


@pytest.mark.parametrize("content", [b"", b"\n\r\n\n"])
def test_a_list_without_names_is_skipped_with_the_reason(content):
    Path("names").write_bytes(content)
    assert skipped("@names") == [("@names", "is a list that contains no names")]


def test_standard_input_that_is_closed_is_a_list_without_names(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert skipped("-") == [("-", "is a list that contains no names")]


def test_a_list_that_does_not_exist_is_refused():
    assert refused("@gone.txt") == (
        "cannot read the list '@gone.txt': No such file or directory",
        "a list has one image name per line; a file of this name is written './@gone.txt'",
    )


def test_a_list_that_is_a_folder_is_refused():
    make("photos/")
    assert refused("@photos")[0] == "cannot read the list '@photos': Is a directory"
    assert refused("@")[0] == "cannot read the list '@': Is a directory"


def test_an_image_in_place_of_a_list_is_refused():
    Image.new("RGB", (2, 2)).save("a.png")
    assert refused("@a.png") == (
        "the list '@a.png' is not text with a name on each line: it contains a NUL",
        "add -0 if its names are separated by NUL; or is it an image, or UTF-16 text?",
    )


def test_standard_input_twice_is_refused():
    assert refused("-", "b.png", "-") == (
        "standard input is named twice",
        "give '-' once, for all names",
    )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a/cat.png", "dog.jpg"], ["cat", "dog"]),
        (["a/cat.png", "b/cat.jpg", "c/cat"], ["cat", "cat-2", "cat-3"]),
        (["cat.png", "CAT.png", "Cat.png"], ["cat", "CAT-2", "Cat-3"]),
        (["cat-2.png", "cat.png", "cat.jpg", "cat-2.jpg"], ["cat-2", "cat", "cat-3", "cat-2-2"]),
        (["cat.png", "cat.jpg", "cat-2.png"], ["cat", "cat-2", "cat-2-2"]),
        (["ä b.png", "ö b.png", "é.png", "?.png"], ["b", "b-2", "unnamed", "unnamed-2"]),
    ],
)
def test_keys_are_safe_stems_with_a_number_where_they_are_taken(files, expected):
    assert [image.key for image in list_images(files)] == expected
