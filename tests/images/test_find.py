"""Words to files: folders, globs and lists of names, and keys for many files."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
from pathlib import Path

import pytest
from PIL import Image

from hookcli.errors import RequestError
from hookcli.images.find import find_files
from hookcli.images.read import list_images, read_images
from hookcli.outside.files import safe_name
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


MADE = {
    "files are passed on in their order, whatever they are called": (
        ["b.png", "a.txt", "c.npy"],
        ["c.npy", "b.png", "gone.png", "a.txt", "b.png"],
        ["c.npy", "b.png", "gone.png", "a.txt", "b.png"],
    ),
    "a name with a NUL is passed on": ([], ["a\0.png"], ["a\0.png"]),
    "a folder is its images": (
        ["photos/b.png", "photos/a.jpg", "photos/notes.txt"],
        ["photos"],
        ["photos/a.jpg", "photos/b.png"],
    ),
    "a folder with a slash": (["photos/a.png"], ["photos/"], ["photos/a.png"]),
    "a folder with a dot": (["photos/a.png"], ["./photos"], ["./photos/a.png"]),
    "a folder by way of its parent": (
        ["photos/a.png"],
        ["photos/../photos"],
        ["photos/../photos/a.png"],
    ),
    "the working directory is a folder": (["a.png"], ["."], ["./a.png"]),
    "a folder is searched to the bottom": (
        ["photos/a/b/c/d.png", "photos/e.png"],
        ["photos"],
        ["photos/a/b/c/d.png", "photos/e.png"],
    ),
    "a folder that is named like an image": (
        ["photos/a.png/b.png"],
        ["photos"],
        ["photos/a.png/b.png"],
    ),
    "hidden files and folders are left out": (
        ["photos/.a.png", "photos/._b.png", "photos/.thumbs/c.png", "photos/.png", "photos/d.png"],
        ["photos"],
        ["photos/d.png"],
    ),
    "a hidden folder that is named is searched": (
        [".photos/a.png"],
        [".photos"],
        [".photos/a.png"],
    ),
    "a folder that is named twice": (["p/a.png"], ["p", "p"], ["p/a.png", "p/a.png"]),
    "a folder of tensor files alone gives them": (
        ["arrays/b.npy", "arrays/in/a.SAFETENSORS", "arrays/.c.npy", "arrays/notes.txt"],
        ["arrays"],
        ["arrays/b.npy", "arrays/in/a.SAFETENSORS"],
    ),
    "tensor files beside images are left out": (
        ["photos/a.png", "photos/model.safetensors", "photos/in/b.npy"],
        ["photos"],
        ["photos/a.png"],
    ),
    "a manifest that is a folder leaves nothing out": (
        ["photos/manifest.json/a.png"],
        ["photos"],
        ["photos/manifest.json/a.png"],
    ),
    "a star": (
        ["b.png", "a.png", "c.jpg", "a1.png", ".d.png"],
        ["*.png"],
        ["a.png", "a1.png", "b.png"],
    ),
    "a question mark": (["b.png", "a.png", "a1.png"], ["?.png"], ["a.png", "b.png"]),
    "brackets": (["b.png", "a.png", "c.jpg"], ["[bc].*"], ["b.png", "c.jpg"]),
    "what a glob matches may have any suffix": (["a.dat"], ["*.dat"], ["a.dat"]),
    "two stars match files at every depth": (
        ["p/a/z.png", "p/a-b/c.png", "p/a.png"],
        ["p/**/*.png"],
        ["p/a/z.png", "p/a-b/c.png", "p/a.png"],
    ),
    "folders that a glob matches are opened out": (
        ["photos/1/b.png", "photos/2/a.png", "photos/2/notes.txt"],
        ["photos/*"],
        ["photos/1/b.png", "photos/2/a.png"],
    ),
    "a file that a glob matches by itself and in a folder": (
        ["photos/1/2/a.png", "photos/b.png"],
        ["photos/**"],
        ["photos/1/2/a.png", "photos/b.png"],
    ),
    "a folder with the characters of a glob in its name": (
        ["[ab]/x.png", "a/y.png"],
        ["[ab]"],
        ["[ab]/x.png"],
    ),
    "a file whose name begins with an at sign": (
        ["@x.png", "photos/@y.png", "-"],
        ["./@x.png", "photos", "./-"],
        ["./@x.png", "photos/@y.png", "./-"],
    ),
}


@pytest.mark.parametrize("what", MADE)
def test_words_name_files_folders_and_globs(what):
    files, words, expected = MADE[what]
    make(*files)
    assert found(*words) == expected


def test_no_words_name_no_files():
    assert find_files([]) == ([], [])


def test_an_absolute_folder_gives_absolute_files(tmp_path):
    make("photos/a.png")
    assert found(f"{tmp_path}/photos") == [f"{tmp_path}/photos/a.png"]


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


@pytest.mark.parametrize(
    "suffix",
    [
        *("png", "jpg", "jpeg", "JPG", "Png", "webp", "bmp", "gif", "tif", "tiff", "avif", "jp2"),
        *("ppm", "pgm", "tga", "ico", "psd", "qoi", "mpo", "dds", "apng", "jfif"),
    ],
)
def test_an_image_is_known_by_its_suffix(suffix):
    make(f"photos/a.{suffix}")
    assert found("photos") == [f"photos/a.{suffix}"]


@pytest.mark.parametrize(
    "name",
    [
        *("a.pdf", "a.eps", "a.ps", "a.wmf", "a.emf", "a.mpg", "a.mpeg", "a.h5", "a.hdf", "a.grib"),
        *("a.bufr", "a.palm", "a.txt", "a.mp4", "png", "a", "a.png~"),
        *("a.png.txt", "a.pngx", "apng"),
    ],
)
def test_what_is_no_picture_by_its_suffix_is_left_out_of_a_folder(name):
    make(f"photos/{name}")
    assert skipped("photos") == [("photos", "is a folder without images")]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_pillow_writes_and_the_reader_reads_is_found_in_a_folder():
    make("photos/")
    written = [f"photos/a{suffix}" for suffix in Image.registered_extensions()]
    for file, mode in itertools.product(written, ("RGB", "P", "1")):
        with contextlib.suppress(OSError, ValueError, KeyError):  # no such mode, no writer
            Image.new(mode, (16, 16)).save(file)
    readable = {source.file for source in read_images(written)[0]}
    assert len(readable) >= 20
    assert readable - set(found("photos")) == set()


def test_a_link_to_a_folder_is_followed():
    make("elsewhere/a.png", "photos/")
    Path("photos/link").symlink_to("../elsewhere")
    assert found("photos") == ["photos/link/a.png"]


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


@pytest.mark.parametrize("recursive", [True, False])
def test_a_link_to_nowhere_or_itself_is_passed_on_if_it_has_an_images_name(recursive):
    make("photos/", "a1.png")
    Path("photos/a.png").symlink_to("gone.png")
    Path("photos/b").symlink_to("gone")
    Path("photos/c.png").symlink_to("c.png")
    Path("a?.png").symlink_to("gone")
    words = ("photos", "a?.png")
    assert found(*words, recursive=recursive) == ["photos/a.png", "photos/c.png", "a?.png"]


def test_a_folder_in_a_folder_that_cannot_be_read_is_skipped_and_the_rest_is_found():
    make("photos/a.png", "photos/c.png")
    Path("photos/b").symlink_to("b")  # a link to itself: following it is an error, even for root
    assert find_files(["photos"]) == (
        ["photos/a.png", "photos/c.png"],
        [SkippedImage("photos/b", "cannot be read: Too many levels of symbolic links")],
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission_is_skipped_with_that_reason():
    make("photos/locked/", "photos/c.png", "locked/")
    Path("photos/locked").chmod(0)
    Path("locked").chmod(0)
    assert find_files(["photos", "locked", "locked/a.png", "locked/*"]) == (
        ["photos/c.png", "locked/a.png"],
        [
            SkippedImage("photos/locked", "cannot be read: Permission denied"),
            SkippedImage("locked", "cannot be read: Permission denied"),
            SkippedImage("locked/*", "matches no file"),
        ],
    )


def test_folders_deeper_than_python_recurses_are_searched():
    file = Path("photos", *"d" * (sys.getrecursionlimit() + 50), "a.png")
    for depth in range(1, len(file.parts)):
        Path(*file.parts[:depth]).mkdir()
    file.touch()
    try:
        assert found("photos") == [str(file)]
    finally:
        file.unlink()  # pytest could not remove it: that does recurse
        os.removedirs(file.parent)


def test_the_output_folder_is_left_out_whatever_its_name(tmp_path):
    make("photos/a.png", "photos/out/b.png")
    Path("link").symlink_to("photos/out")
    for out in ("photos/out", "link", tmp_path / "photos" / ".." / "photos" / "out"):
        assert found("photos", leave_out=Path(out)) == ["photos/a.png"]
    assert found("photos", leave_out=Path("photos/none")) == ["photos/a.png", "photos/out/b.png"]


def test_a_link_to_the_output_folder_is_left_out():
    make("photos/a.png", "out/b.png")
    Path("photos/link").symlink_to("../out")
    assert found("photos", leave_out=Path("out")) == ["photos/a.png"]


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


def test_an_unfinished_run_beside_the_manifest_of_another_tool_is_a_run():
    make("photos/a.png", "photos/run/b.png", "photos/run/manifest.json")
    Path("photos/run/run.json").write_text(OURS)
    assert found("photos") == ["photos/a.png"]


@pytest.mark.parametrize("text", ["", "{}", '{"lr": 0.1}', '{"hookcli": "0.1.0"}'])
def test_a_run_json_of_another_tool_leaves_nothing_out(text):
    make("photos/app/a.png")
    Path("photos/app/run.json").write_text(text)
    assert found("photos") == ["photos/app/a.png"]
    assert found("photos/*/*.png") == ["photos/app/a.png"]


def test_a_pipe_called_like_a_manifest_is_not_waited_for():
    make("photos/a.png")
    os.mkfifo("photos/manifest.json")
    os.mkfifo("photos/run.json")
    assert found("photos") == ["photos/a.png"]


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[]", '["hookcli", "files"]', '{"hookcli": 1}', '{"files": []}', "\xff", "1"),
        "[" * 100_000,
    ],
)
def test_a_manifest_of_another_tool_leaves_nothing_out(content):
    make("photos/app/a.png")
    Path("photos/app/manifest.json").write_text(content, encoding="latin-1")
    assert found("photos") == ["photos/app/a.png"]


def test_below_its_first_star_a_glob_leaves_out_runs_and_the_output_folder():
    make("p/a.png", "p/run/seen/b.png", "p/out/deep/c.png")
    Path("p/run/run.json").write_text(OURS)
    assert found("p/**/*.png") == ["p/a.png", "p/out/deep/c.png"]
    assert found("p/**/*.png", leave_out=Path("p/out")) == ["p/a.png"]


@pytest.mark.parametrize("word", ["run/seen/*", "run/see?/a.png", "run/[s]een/a.png"])
def test_what_a_glob_names_before_its_first_star_may_be_a_run(word):
    make("run/seen/a.png")
    Path("run/run.json").write_text(OURS)
    assert found(word) == ["run/seen/a.png"]


def test_a_glob_that_matches_nothing_is_skipped_with_the_reason():
    make("photos/")
    assert skipped("photos/*.png") == [("photos/*.png", "matches no file")]
    assert skipped("a\0/*") == [("a\0/*", "matches no file")]
    assert skipped("a" * 5000 + "*") == [("a" * 5000 + "*", "matches no file")]


@pytest.mark.parametrize("name", ["a[1].png", "a*.png", "a?.png", "[b]"])
def test_a_file_with_the_characters_of_a_glob_in_its_name_is_that_file(name):
    make(name, "a1.png", "ab.png", "b")
    assert found(name) == [name]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (
            b"z.png\n\ngone.png\r\nphotos\n a .txt\n10.png\n9.png",
            ["z.png", "gone.png", "photos/b.png", " a .txt", "10.png", "9.png"],
        ),
        (b"a\rb.png\r\r\n\r\n", ["a\rb.png\r"]),
        (b"\xef\xbb\xbfa.png\r\nb.png\r\n", ["a.png", "b.png"]),  # Windows puts a mark before it
        (b"*.png\n@more.txt\n-\n?.png\n", ["*.png", "@more.txt", "-", "?.png"]),
    ],
)
def test_a_list_is_a_name_a_line_of_a_file_or_folder_and_no_glob(content, names):
    make("photos/b.png", "lists/", "a.png")
    Path("lists/names.txt").write_bytes(content)
    assert found("@lists/names.txt") == names


def test_a_list_may_come_from_standard_input():
    assert found("a.png", "-", "d.png", stdin=io.BytesIO(b"b.png\nc.png\n")) == [
        *("a.png", "b.png", "c.png", "d.png"),
    ]


def test_standard_input_is_that_of_the_process_unless_given(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"a.png\n\xff.png\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert found("-") == ["a.png", "\udcff.png"]


def test_names_in_a_list_may_have_a_nul_between_them_and_newlines_in_them():
    Path("names").write_bytes(b"a\nb.png\0c.png\r\0\0d.png")
    assert found("@names", null_separated=True) == ["a\nb.png", "c.png\r", "d.png"]


def test_names_in_a_list_that_are_not_utf_8_name_their_files():
    name = b"\xe9t\xe9.png"
    Path(os.fsdecode(name)).write_text("summer")
    file = found("-", stdin=io.BytesIO(name))[0]
    assert Path(file).read_text() == "summer"


def test_two_lists_may_name_the_same_file():
    Path("names").write_text("a.png\na.png\n")
    assert found("@names", "@names") == ["a.png"] * 4


@pytest.mark.parametrize("content", [b"", b"\n\r\n\n"])
def test_a_list_without_names_is_skipped_with_the_reason(content):
    Path("names").write_bytes(content)
    assert skipped("@names") == [("@names", "is a list that contains no names")]
    assert skipped("-", stdin=io.BytesIO(content)) == [("-", "is a list that contains no names")]


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


def test_a_list_with_a_nul_in_its_name_is_refused():
    assert refused("@a\0b")[0].startswith("cannot read the list '@a\\x00b': ")
    assert "embedded null" in refused("@a\0b")[0]


def test_standard_input_that_cannot_be_read_is_refused():
    stdin = io.BytesIO()
    stdin.close()
    assert refused("-", stdin=stdin) == (
        "cannot read the list '-': I/O operation on closed file.",
        "a list has one image name per line; a file of this name is written './-'",
    )


def test_an_image_in_place_of_a_list_is_refused():
    Image.new("RGB", (2, 2)).save("a.png")
    assert refused("@a.png") == (
        "the list '@a.png' is not text with a name on each line: it contains a NUL",
        "add -0 if its names are separated by NUL; or is it an image, or UTF-16 text?",
    )


def test_standard_input_twice_is_refused_before_it_is_read():
    stdin = io.BytesIO(b"a.png")
    assert refused("-", "b.png", "-", stdin=stdin) == (
        "standard input is named twice",
        "give '-' once, for all names",
    )
    assert stdin.tell() == 0


def unique_keys(files):
    return [image.key for image in list_images(files)]


def one_after_the_other(files):
    """The rule as it is told: the stem, made safe; the first number from 2 that makes it new."""
    keys = []
    for file in files:
        stem = safe_name(Path(file).stem)
        tries = [stem, *(f"{stem}-{number}" for number in range(2, len(files) + 2))]
        used = {key.lower() for key in keys}
        keys.append(next(key for key in tries if key.lower() not in used))
    return keys


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
    assert unique_keys(files) == expected
    assert one_after_the_other(files) == expected


def test_keys_are_those_of_the_rule_for_names_that_collide_with_numbers():
    stems = ["a", "A", "a-2", "a-2-2", "a-3", "b", "a-1", "a-02", "a-"]
    files = [f"{stems[index * index * 7 % 97 % len(stems)]}.png" for index in range(300)]
    assert unique_keys(files) == one_after_the_other(files)


def test_five_thousand_names_of_one_stem_get_their_keys():
    keys = unique_keys(["cat.png", "CAT.png"] * 2_500)
    numbered = [f"{('CAT', 'cat')[number % 2]}-{number}" for number in range(2, 5_001)]
    assert keys == ["cat", *numbered]
