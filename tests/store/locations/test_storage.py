"""Storages: hookcli retries after passing errors, reports lasting ones, and uses the options."""

from __future__ import annotations

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from hookcli.errors import OutputError, RequestError
from hookcli.store.locations import storage
from hookcli.store.locations.remote_folder import RemoteFolder
from tests.store.locations.test_remote_folder import RUN, memory, open_run  # noqa: F401


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


class NoCredentialsError(Exception):
    """An error that the package of a storage raises."""


def test_an_error_that_passes_is_waited_for(monkeypatch, quick):
    flaky = Flaky(monkeypatch, "pipe_file", 2, ConnectionError("reset"))
    RemoteFolder(RUN).write("layers.csv", b"rows")
    assert flaky.left == 0
    assert RemoteFolder(RUN).read("layers.csv") == b"rows"


def test_an_error_that_stays_ends_the_run_and_leaves_what_is_complete(monkeypatch, quick):
    with open_run() as run:
        run.write("layers.csv", b"rows")
        Flaky(monkeypatch, "pipe_file", -1, AnswerError(503))
        with pytest.raises(OutputError) as caught:
            run.write("skipped.csv", b"rows")
    assert caught.value.exit_code == 5
    assert "503" in caught.value.message
    monkeypatch.undo()
    with open_run(resume=True) as run:
        assert run.read("layers.csv") == b"rows"


class ClientError(Exception):
    """An error that a request to S3 raises."""

    def __init__(self, code):
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


def denied(code):
    """Return the error with which s3fs reports a denied access."""
    error = PermissionError(code)
    error.__cause__ = ClientError(code)
    return error


class AnswerError(Exception):
    """What a web server answers."""

    def __init__(self, status):
        super().__init__(f"{status}, message='...'")
        self.status = status


@pytest.mark.parametrize(
    ("error", "kind", "tries"),
    [
        (denied("AccessDenied"), PermissionError, 1),
        (PermissionError(13, "denied"), PermissionError, 1),
        (FileNotFoundError("gone"), FileNotFoundError, 1),
        (AnswerError(404), FileNotFoundError, 1),
        (AnswerError(412), FileExistsError, 1),
        (ClientError("PreconditionFailed"), FileExistsError, 1),
        (denied("ExpiredToken"), storage.StorageError, 1),
        (TypeError("unexpected keyword argument 'bogus'"), storage.StorageError, 1),
        (NoCredentialsError("Unable to locate credentials"), storage.StorageError, 1),
        (AnswerError(503), storage.StorageError, 2),
        (AnswerError(429), storage.StorageError, 2),
        (ClientError("SlowDown"), storage.StorageError, 2),
    ],
)
def test_an_error_of_one_file_is_distinguished_from_one_of_the_storage(
    monkeypatch, quick, error, kind, tries
):
    flaky = Flaky(monkeypatch, "cat_file", 99, error)
    with pytest.raises(kind) as caught:
        storage.read_file(RUN / "layers.csv")
    assert type(caught.value) is kind
    assert min(99 - flaky.left, 2) == tries


def test_options_are_those_of_the_filesystem(monkeypatch):
    given = []

    class Noting(MemoryFileSystem):
        cachable = False

        def __init__(self, **words):
            given.append(words)

    monkeypatch.setattr("fsspec.get_filesystem_class", lambda _scheme: Noting)
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
    def missing(_scheme):
        raise ImportError("Please install gcsfs")

    monkeypatch.setattr("fsspec.get_filesystem_class", missing)
    with pytest.raises(RequestError, match="needs a package") as caught:
        storage.check_url("gs://bucket/run")
    assert caught.value.hint == "pip install 'hookcli[gs]'"
