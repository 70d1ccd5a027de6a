"""Tests of the check of zip archives, with damaged and hostile ones that these tests make."""

import hashlib
import io
import struct
import zipfile
from typing import Any

import pytest
import torch

from hookcli.networks.torch_archive import list_members, load_archive
from hookcli.networks.weights_file import load_content
from tests.two_directories import END, members_of, saved, with_two_directories


def packed(members, **options):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **options) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def refuse(content):
    with pytest.raises(ValueError, match=r"\w") as caught:
        list_members(io.BytesIO(content))
    return str(caught.value)


NET = saved({"a": torch.ones(2), "b": torch.zeros(100)})
VERSION = ("a/version", b"3")
SPLIT = struct.unpack(END, NET[-struct.calcsize(END) :])[6]  # where the directory begins


@pytest.mark.parametrize("content", [NET, packed(members_of(NET))])
def test_members_of_an_archive_are_those_that_torch_reads(content):
    records = torch._C.PyTorchFileReader(io.BytesIO(content)).get_all_records()
    found = [member.filename.partition("/")[2] for member in list_members(io.BytesIO(content))]
    assert sorted(found) == sorted(records)
    loaded: Any = load_archive(io.BytesIO(content))
    assert loaded["a"].tolist() == [1, 1]


def test_entries_of_folders_are_left_out():
    content = packed([("archive/", b""), *members_of(NET), ("archive/data/", b"")])
    assert "archive/" not in [member.filename for member in list_members(io.BytesIO(content))]
    loaded: Any = load_archive(io.BytesIO(content))
    assert loaded["a"].tolist() == [1, 1]
    assert refuse(packed([("archive/", b"x"), *members_of(NET)])) == (
        "torch finds other members in it"
    )


def test_an_archive_with_a_comment_is_loaded():
    loaded: Any = load_archive(io.BytesIO(NET[:-2] + b"\x05\0hello"))
    assert loaded["a"].tolist() == [1, 1]


def test_an_archive_with_two_directories_is_refused():
    other = saved({"a": torch.full((2,), 7.0), "b": torch.zeros(100)})
    content = with_two_directories(members_of(NET), members_of(other))
    assert members_of(content) == members_of(NET)  # zipfile reads these
    assert torch.load(io.BytesIO(content))["a"].tolist() == [7, 7]  # torch reads the others
    assert refuse(content) == "it may have a second directory"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\0" * 64 + NET, "second directory"),
        (NET + b"\0" * 8, "second directory"),  # zipfile takes them for a comment
        (NET[:-2] + b"\x1a\0PK\5\6" + NET[-18:], "second directory"),  # in a comment
        (NET[:-8] + struct.pack("<I", SPLIT - 1) + NET[-4:], "second directory"),
    ],
)
def test_bytes_that_belong_to_no_member_are_refused(content, reason):
    with pytest.raises((ValueError, zipfile.BadZipFile)) as caught:
        list_members(io.BytesIO(content))
    assert reason in str(caught.value) or type(caught.value) is zipfile.BadZipFile


def test_a_gap_between_members_is_refused():
    content = packed([("a/x", b"1"), ("a/gap", bytes(64)), ("a/y", b"2")])
    start, size = content.index(b"PK\1\2"), 46 + len("a/x")
    entry = content.index(b"PK\1\2", start + 1)  # that of a/gap
    directory = content[start : start + size] + content[entry + size + 2 : -22]
    end = struct.pack(END, b"PK\5\6", 0, 0, 2, 2, len(directory), start, 0)
    assert refuse(content[:start] + directory + end) == (
        "its members overlap, or there are gaps between them"
    )


def test_two_members_whose_names_differ_in_case_are_refused():
    assert (
        refuse(packed([VERSION, ("a/x", b""), ("a/X", b"")]))
        == "several members have the same name"
    )


def test_the_hash_is_that_of_the_bytes_that_were_read(tmp_path, monkeypatch):
    file = tmp_path / "w.pth"
    file.write_bytes(NET)
    before = torch.load

    def replacing(*words, **options):
        content = before(*words, **options)
        other = tmp_path / "other.pth"
        other.write_bytes(saved({"a": torch.zeros(1)}))
        other.replace(file)
        return content

    monkeypatch.setattr(torch, "load", replacing)
    loaded: Any
    loaded, sha256 = load_content(file)
    assert loaded["a"].tolist() == [1, 1]
    assert sha256 == hashlib.sha256(NET).hexdigest()


def test_storages_are_counted_by_their_sizes(monkeypatch):
    """Some versions of torch read memory beyond one of two storages that is too short."""
    whole = members_of(saved({"a": torch.ones(2), "b": torch.ones(2)}))
    short = [(name, data[:4] if name.endswith("data/1") else data) for name, data in whole]

    def load(_stream, map_location, **_options):
        for _ in range(2):
            map_location(torch.ones(2).untyped_storage(), "cpu")

    monkeypatch.setattr(torch, "load", load)
    load_archive(io.BytesIO(packed(whole)))
    with pytest.raises(ValueError, match=r"^values are missing$"):
        load_archive(io.BytesIO(packed(short)))


def test_bytes_before_the_first_member_are_refused():
    """As many as may follow a member."""
    stream = io.BytesIO()
    stream.write(bytes(16))
    with zipfile.ZipFile(stream, "a") as archive:
        for name, content in members_of(NET):
            archive.writestr(name, content)
    assert refuse(stream.getvalue()) == "its members overlap, or there are gaps between them"


def changed(content, offset, form, value):
    data = bytearray(content)
    struct.pack_into(form, data, offset, value)
    return bytes(data)


ENDS = len(NET) - struct.calcsize(END)
LOCATOR, LARGE_END = ENDS - 20, ENDS - 20 - 56  # for large archives, as torch writes them


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [
        (LOCATOR + 8, "<Q", LARGE_END - 1),
        (LARGE_END, "<4s", b"PK\6\5"),
        (LARGE_END + 32, "<Q", 1),
        (LARGE_END + 48, "<Q", SPLIT + 1),
        (ENDS + 16, "<I", SPLIT + 1),
    ],
)
def test_ends_of_an_archive_that_say_different_things_are_refused(offset, form, value):
    with pytest.raises((ValueError, zipfile.BadZipFile)):
        list_members(io.BytesIO(changed(NET, offset, form, value)))


def test_an_end_that_counts_other_members_is_refused():
    content = packed(members_of(NET))
    start = len(content) - struct.calcsize(END)
    count = len(members_of(NET)) + 1
    assert refuse(changed(content, start + 10, "<H", count)) == "it may have a second directory"


def test_members_without_a_folder_are_those_of_an_older_archive():
    content = packed([("version", b"3"), ("data.pkl", b"")])
    found = [member.filename for member in list_members(io.BytesIO(content))]
    assert found == ["version", "data.pkl"]
