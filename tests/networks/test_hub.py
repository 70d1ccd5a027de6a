"""Files of models: in folders, and from a server that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from types import SimpleNamespace

import pytest

from hookcli.errors import ModelError, RequestError
from hookcli.networks.hub import (
    FileSource,
    FolderFiles,
    Repository,
    fail_fast_offline,
    find_files,
    guard_library,
    is_cached,
    join_hashes,
    list_cached,
    read_config,
)
from tests.hub_server import MAIN, OLD, Hub, as_the_hub, nowhere, serving

pytest.importorskip("huggingface_hub")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    (made / "config.json").write_text("{}", encoding="utf-8")
    (made / "model.safetensors").write_bytes(bytes(range(256)) * 400)
    return made


@pytest.fixture
def hub(folder, tmp_path):
    served = Hub()
    served.add("zoo/net", folder)
    served.files["zoo/net", OLD, "config.json"] = b'{"old": true}'
    with serving(served), as_the_hub(served.url, tmp_path / "cache"):
        yield served


def test_a_file_of_a_repository_is_downloaded_once(hub, folder):
    files = find_files("hf-hub:zoo/net")
    assert (
        files.find("model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    )
    assert files.label == f"zoo/net@{MAIN[:12]}"
    hub.asked.clear()
    assert files.find("model.safetensors") is not None
    assert hub.asked == []  # the commit is known, and the file is cached


def test_a_revision_is_the_one_that_was_asked_for(hub):
    files = Repository("zoo/net@old")
    assert json.loads(files.find("config.json").read_text()) == {"old": True}
    assert files.find("model.safetensors") is None
    assert files.label == f"zoo/net@{OLD[:12]}"


def test_a_transfer_that_breaks_is_continued_where_it_ended(hub, folder):
    hub.cut["model.safetensors"] = 61_440
    found = Repository("zoo/net").find("model.safetensors")
    assert found.read_bytes() == (folder / "model.safetensors").read_bytes()
    ranges = [asked for method, _, asked in hub.asked if method == "GET"]
    assert ranges == ["", "bytes=61440-"]


def test_cached_files_need_no_network(hub, tmp_path):
    Repository("zoo/net").find("config.json")
    with as_the_hub(nowhere(), tmp_path / "cache"):
        assert Repository("zoo/net").find("config.json").read_text() == "{}"
        assert is_cached("zoo/net", "config.json")
        assert not is_cached("zoo/net", "model.safetensors")
        assert [name for name, _ in list_cached()] == ["zoo/net"]
        with pytest.raises(OSError, match="cannot be reached"):
            Repository("zoo/net").find("model.safetensors")
    assert next(iter(list_cached()))[1].joinpath("config.json").is_file()


def test_a_repository_that_is_not_there_is_refused(hub):
    with pytest.raises(RequestError) as refused:
        Repository("zoo/none").find("config.json")
    assert refused.value.message == "the hub has no model 'zoo/none' that you may read"
    assert refused.value.exit_code == 2


def test_a_revision_that_is_not_there_is_refused(hub):
    with pytest.raises(RequestError) as refused:
        Repository("zoo/net@none").find("config.json")
    assert refused.value.message == "zoo/net has no revision 'none'"
    assert refused.value.hint == f"its branches and tags: {hub.url}/zoo/net/tree/main"


def test_a_gated_repository_is_answered_with_where_to_ask(hub):
    hub.gated.add("zoo/net")
    with pytest.raises(ModelError) as refused:
        Repository("zoo/net").find("config.json")
    assert refused.value.message.startswith("zoo/net is gated")
    assert refused.value.hint == f"ask on {hub.url}/zoo/net, then log in: hf auth login"
    assert refused.value.exit_code == 4


def test_a_folder_is_preferred_to_a_repository_of_its_name(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    found = find_files("made")
    assert (type(found), found.label) == (FolderFiles, "made")
    assert found.find("config.json").read_text() == "{}"
    assert found.find("none.json") is None


def test_weights_in_parts_are_found_by_their_index(folder):
    weights = {"a": "part-2.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"}
    index = folder / "net.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    for name in set(weights.values()):
        (folder / name).write_bytes(name.encode())
    found = FolderFiles(folder).find_parts("net.safetensors")
    assert [file.name for file in found] == ["part-1.safetensors", "part-2.safetensors"]
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in found]
    assert join_hashes(hashes) == hashlib.sha256("".join(hashes).encode()).hexdigest()
    assert join_hashes(hashes[:1]) == hashes[0]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ('{"weight_map": {"a": "none.safetensors"}}', "lacks a part of its weights: none.saf"),
        ('{"weight_map": [1]}', "net.safetensors.index.json is damaged"),
        ("{", "net.safetensors.index.json cannot be read: Expecting property name"),
        ("[]", "net.safetensors.index.json is damaged"),
        *(
            (json.dumps({"weight_map": {"a": name}}), "index.json is damaged: it names ")
            for name in ("../secret/x.safetensors", "..", "a\\x", "x\0")
        ),
    ],
)
def test_a_damaged_index_of_weights_is_refused(folder, index, message):
    (folder / "net.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match=message):
        FolderFiles(folder).find_parts("net.safetensors")


def test_a_model_of_files_has_at_most_a_value_for_each_two_bytes_of_memory(folder, monkeypatch):
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 20}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert FileSource("net", lambda: None, files=FolderFiles(folder)).most_values == 1 << 31
    assert FileSource("net", lambda: None).most_values is None


class Remote(FolderFiles):
    is_remote = True


def read(folder, content, kind=FolderFiles):
    file = folder / "config.json"
    file.write_text(json.dumps(content))
    return read_config(file, "net", kind(folder))


@pytest.mark.parametrize(
    "content",
    [
        {"size": {"shortest_edge": 224, "longest_edge": 1 << 20}},
        {"size": 8192, "image_size": [8192, 8192]},
        {"anything": 1 << 24},
        {"backbone": "resnet18", "encoder_name": "timm/resnet.a1-b"},
        {"backbone": None, "name": "/etc"},
    ],
)
def test_a_configuration_of_usual_numbers_and_names_is_read(folder, content):
    assert read(folder, content) == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"size": {"longest_edge": 8193}}, "longest_edge is 8193, but may be at most 8192"),
        ({"image_size": [224, 8193]}, "image_size is 8193, but may be at most 8192"),
        ({"a": [{"words": (1 << 24) + 1}]}, "words is 16777217, but may be at most 16777216"),
        ({"backbone": "/etc"}, "backbone is '/etc', which is not in the folder"),
        ({"a": {"encoder_name": "../x"}}, "encoder_name is '../x', which is not in the folder"),
    ],
)
def test_a_number_that_no_model_has_and_a_part_from_elsewhere_are_refused(folder, content, message):
    with pytest.raises(ModelError) as refused:
        read(folder, content)
    assert refused.value.message == f"net: config.json: {message}"


def test_a_folder_is_no_name_of_a_part(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    with pytest.raises(ModelError, match="backbone is 'made', which is not in the folder"):
        read(folder, {"backbone": "made"})


def test_a_model_on_the_hub_may_name_its_parts(folder):
    content = {"backbone": "a/b/c"}
    assert read(folder, content, Remote) == content
    assert read(folder, [1]) == {}  # no mapping


def test_no_library_asks_the_hub_while_files_are_in_a_folder(folder, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with guard_library("net", FolderFiles(folder)):
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    with guard_library("net", None):
        assert not constants.HF_HUB_OFFLINE


def test_only_models_in_the_cache_are_listed_with_their_newest_files(monkeypatch):
    import huggingface_hub

    def repository(name, kind, *times):
        revisions = [SimpleNamespace(last_modified=each, snapshot_path=each) for each in times]
        return SimpleNamespace(repo_id=name, repo_type=kind, revisions=revisions)

    kept = repository("b", "model", 1, 3, 2), repository("a", "model", 5)
    others = repository("c", "dataset", 1), repository("d", "model")
    cache = SimpleNamespace(repos=[*kept, *others])
    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", lambda _: cache)
    assert list(list_cached()) == [("a", 5), ("b", 3)]


@pytest.mark.parametrize(
    ("endpoint", "proxy", "asked"),
    [
        ("https://hub.example", "", [("hub.example", 443)]),
        ("http://hub.example:8080/x", "", [("hub.example", 8080)]),
        ("https://hub.example", "http://proxy.example", []),
    ],
)
def test_the_hub_is_tried_once_unless_there_is_a_proxy(monkeypatch, endpoint, proxy, asked):
    from huggingface_hub import constants

    tried = []

    def connect(address, _seconds):
        tried.append(address)
        raise OSError

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.setattr(socket, "create_connection", connect)
    fail_fast_offline()
    assert tried == asked
    assert constants.HF_HUB_OFFLINE is bool(asked)


@pytest.mark.parametrize("location", ["a/b/c", "./none", "~none/x"])
def test_what_can_only_be_a_path_is_no_name_of_a_repository(location):
    with pytest.raises(RequestError) as refused:
        find_files(location)
    assert refused.value.message == f"there is no folder {location!r}"
