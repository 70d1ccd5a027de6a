"""A server on this machine that speaks as much of the hub's protocol as downloads need."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import socket
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAIN, OLD = "a" * 40, "b" * 40  # commits


class Hub:
    """What the server has, and what it was asked.

    Attributes:
        files: the content of each file, by repository, commit and name.
        gated: repositories for which one must ask for access.
        cut: after how many bytes the next transfer of a file is cut off, by name.
        asked: the method, the name and the range of every request.
    """

    def __init__(self) -> None:
        self.files: dict[tuple[str, str, str], bytes] = {}
        self.gated: set[str] = set()
        self.cut: dict[str, int] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.url = ""

    def add(self, repository: str, folder: Path, commit: str = MAIN) -> None:
        """Offer the files in ``folder`` as one commit of a repository."""
        for file in folder.iterdir():
            self.files[repository, commit, file.name] = file.read_bytes()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_words: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        repo, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        asked = self.headers.get("Range", "")
        self.hub.asked.append((self.command, name, asked))
        commits = {commit for repository, commit, _ in self.hub.files if repository == repo}
        commit = {"main": MAIN, "old": OLD}.get(revision, revision)
        if not commits:
            self._refuse(401, "RepoNotFound")
        elif repo in self.hub.gated:
            self._refuse(403, "GatedRepo")
        elif commit not in commits:
            self._refuse(404, "RevisionNotFound")
        elif (repo, commit, name) not in self.hub.files:
            self._refuse(404, "EntryNotFound", commit)
        else:
            self._send(self.hub.files[repo, commit, name], name, commit, asked, with_body=with_body)

    def _refuse(self, status: int, code: str, commit: str = "") -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        if commit:
            self.send_header("X-Repo-Commit", commit)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, data: bytes, name: str, commit: str, asked: str, *, with_body: bool) -> None:
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if not with_body:
            return
        if (end := self.hub.cut.pop(name, None)) is not None:
            self.wfile.write(data[start:end])
            self.close_connection = True
            return
        with contextlib.suppress(ConnectionError):
            self.wfile.write(data[start:])


@contextlib.contextmanager
def serving(hub: Hub) -> Iterator[None]:
    """Serve ``hub`` while the block lasts; its ``url`` is the server's."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def as_the_hub(url: str, cache: Path) -> Iterator[None]:
    """Let the hub's library ask ``url``, with a cache of its own, while the block lasts."""
    from huggingface_hub import constants

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", url)
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1024)  # what is kept of a broken transfer
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            patch.delenv(name, raising=False)
        yield


def nowhere() -> str:
    """Return an address at which no server listens."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{made.getsockname()[1]}"
