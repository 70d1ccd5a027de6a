"""Tests of the check of zip archives, with damaged and hostile ones that these tests make."""

import hashlib
import io
import struct
import zipfile
from typing import Any

import pytest
import torch

from hookcli.errors import WeightsError
from hookcli.networks.torch_archive import list_members, load_archive
from hookcli.networks.weights_file import load_content
from tests.two_directories import END, members_of, with_two_directories


def saved(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


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


def test_an_archive_that_torch_would_unpack_to_a_thousand_times_its_size_is_refused(tmp_path):
    large = saved({"a": torch.zeros(1_000_000)})
    small = saved({"a": torch.zeros(10)})
    hidden = members_of(large)
    content = with_two_directories(members_of(small), hidden, compression=zipfile.ZIP_DEFLATED)
    file = tmp_path / "w.pth"
    file.write_bytes(content)
    with pytest.raises(WeightsError, match="second directory"):
        load_content(file)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\0" * 64 + NET, "second directory"),
        (NET + b"\0" * 8, "second directory"),  # zipfile takes them for a comment
        (NET[:SPLIT] + bytes(64) + NET[SPLIT:], "second directory"),
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


def test_an_archive_of_two_folders_is_refused():
    with pytest.raises(RuntimeError, match="not in a subdirectory a/: b/y"):
        list_members(io.BytesIO(packed([VERSION, ("a/x", b""), ("b/y", b"")])))


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
