"""Storages: errors that pass are waited for, those that stay are told, and options are used."""

from __future__ import annotations

import pytest

from hookcli.errors import OutputError, RequestError
from hookcli.store.places import storage
from hookcli.store.places.remote_folder import RemoteFolder
from tests.store.test_remote_folder import RUN, memory, open_run  # noqa: F401


class Flaky:
    """Fails some times before it does what it should."""

    def __init__(self, monkeypatch, name, times, error):
        self.left, self.error = times, error
        filesystem = storage._open(RUN)[0]
        self.do = getattr(filesystem, name)
        monkeypatch.setattr(filesystem, name, self)

    def __call__(self, *args, **kwargs):
        if self.left:
            self.left -= 1
            raise self.error
        return self.do(*args, **kwargs)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(storage, "_PAUSE", 0.001)
    monkeypatch.setattr(storage, "_PATIENCE", 0.05)


class PackageError(Exception):
    """What a package of a storage raises."""


@pytest.mark.parametrize("error", [ConnectionError("reset"), TimeoutError(), PackageError("503")])
def test_an_error_that_passes_is_waited_for(monkeypatch, quick, error):
    flaky = Flaky(monkeypatch, "pipe_file", 2, error)
    RemoteFolder(RUN).write("layers.csv", b"rows")
    assert flaky.left == 0
    assert RemoteFolder(RUN).read("layers.csv") == b"rows"


def test_an_error_that_stays_ends_the_run_and_leaves_what_is_complete(monkeypatch, quick):
    with open_run() as run:
        run.write("layers.csv", b"rows")
        Flaky(monkeypatch, "pipe_file", -1, PackageError("503 slow down"))
        with pytest.raises(OutputError) as caught:
            run.write("skipped.csv", b"rows")
    assert caught.value.exit_code == 5
    assert "503 slow down" in caught.value.message
    monkeypatch.undo()
    with open_run(resume=True) as run:
        assert run.read("layers.csv") == b"rows"


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), ValueError("no such bucket")])
def test_an_error_that_cannot_pass_is_told_at_once(monkeypatch, error):
    flaky = Flaky(monkeypatch, "pipe_file", 2, error)
    with pytest.raises(OutputError, match=r"denied|no such bucket"):
        RemoteFolder(RUN).write("layers.csv", b"rows")
    assert flaky.left == 1


def test_missing_credentials_are_told_at_once(monkeypatch):
    class NoCredentialsError(Exception):
        pass

    flaky = Flaky(monkeypatch, "cat_file", 2, NoCredentialsError("Unable to locate credentials"))
    with pytest.raises(OSError, match="Unable to locate credentials"):
        storage.read_file(RUN / "layers.csv")
    assert flaky.left == 1


def test_options_are_those_of_the_filesystem(monkeypatch):
    given = []
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url, **kw: given.append(kw) or (None, url))
    options = [("endpoint_url", "http://localhost:9000"), ("anon", "true"), ("config", '{"a": 1}')]
    storage.use_options(options)
    storage.check_url(RUN)
    storage.use_options(())
    storage.check_url(RUN)
    assert given == [
        {"endpoint_url": "http://localhost:9000", "anon": True, "config": {"a": 1}},
        {},
    ]


def test_a_package_that_is_missing_is_named(monkeypatch):
    def missing(_url, **_options):
        raise ImportError("Please install gcsfs")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(RequestError, match="gs:// needs a package") as caught:
        storage.check_url("gs://bucket/run")
    assert caught.value.hint == "pip install 'hookcli[gs]'"
