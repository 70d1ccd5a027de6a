"""Files of models: in folders, and from a server that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import json

import pytest

from hookcli.errors import ModelError, RequestError
from hookcli.networks.hub import Folder, Repository, find_files, is_cached, join_hashes, list_cached
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
    """A server with the repository ``zoo/net``, which the hub's library asks."""
    served = Hub()
    served.add("zoo/net", folder)
    served.files["zoo/net", OLD, "config.json"] = b'{"old": true}'
    with serving(served), as_the_hub(served.url, tmp_path / "cache"):
        yield served


def test_a_file_of_a_repository_is_downloaded_once(hub, folder):
    files = Repository("zoo/net")
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


def test_an_empty_cache_lists_nothing(hub):
    assert list(list_cached()) == []


def test_a_repository_that_is_not_there_is_refused(hub):
    with pytest.raises(RequestError) as refused:
        Repository("zoo/none").find("config.json")
    assert refused.value.message == "the hub has no model 'zoo/none' that you may read"
    assert refused.value.exit_code == 2


def test_a_name_that_the_hub_does_not_allow_is_refused(hub):
    with pytest.raises(RequestError, match="the hub has no model 'a/b/c'"):
        Repository("a/b/c").find("config.json")


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
    assert (type(found), found.label) == (Folder, "made")
    assert found.find("config.json").read_text() == "{}"
    assert found.find("none.json") is None


def test_weights_in_parts_are_found_by_their_index(folder):
    weights = {"a": "part-2.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"}
    index = folder / "net.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    for name in set(weights.values()):
        (folder / name).write_bytes(name.encode())
    found = Folder(folder).find_parts("net.safetensors")
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
            for name in ("../secret/x.safetensors", "/x.safetensors", "..", "a\\x", "a/x", "x\0")
        ),
    ],
)
def test_a_damaged_index_of_weights_is_refused(folder, index, message):
    (folder / "net.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match=message):
        Folder(folder).find_parts("net.safetensors")
