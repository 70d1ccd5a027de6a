"""Replace ``report.html`` in a run's folder; answer ``--resume`` if the run is already complete."""

from __future__ import annotations

import json
from importlib import metadata
from typing import TYPE_CHECKING

from hookcli.errors import CompleteError, OutputError, RequestError, choose_code
from hookcli.outside.documents import DamagedError, decode_both
from hookcli.outside.files import cannot_write
from hookcli.outside.json_text import plain
from hookcli.records.command import list_differences
from hookcli.records.report import FileList, Manifest
from hookcli.records.text import and_more, count
from hookcli.store.locations.folders import find_folder, open_folder
from hookcli.store.locations.names import MANIFEST, PAGE, PARTS, is_run_file
from hookcli.store.ownership import find_run, list_damage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.outside.urls import Location

_RUN_AGAIN = "start again with `overwrite=True`, or choose another `out`"


def replace_page(path: Location, page: bytes) -> Location:
    try:
        folder = open_folder(path)
        if find_run(folder) is None:
            what = f"{str(path)!r} is not the folder of a run"
            raise RequestError(what, "give the folder of a run")
        with folder.lock():
            held = find_run(folder)
            assert held is not None  # noqa: S101  nobody else may write here
            is_ours = PAGE in held.known and folder.is_file(PAGE)
            if not is_ours and folder.find(PAGE) is not None:
                what = f"{str(path / PAGE)!r} was not written by this run"
                raise OutputError(what, "move it away, or run `hookcli.inspect` again")
            folder.remove(folder.list_partial(held.journal))
            folder.write(PAGE, page)
            if held.complete is not None and held.complete.sizes.get(PAGE, len(page)) != len(page):
                document, listed = decode_both(folder.read(MANIFEST) or b"", FileList)
                document["sizes"] = {**listed.sizes, PAGE: len(page)}
                text = json.dumps(document, indent=1) + "\n"  # names are already escaped
                folder.write(MANIFEST, text.encode())
    except OSError as error:
        raise cannot_write(path / PAGE, error) from error
    return path / PAGE


def finish_resume(
    path: Location,
    command: Sequence[str],
    weights_sha256: str,
    images: Mapping[str, str],
    *,
    inputs: Mapping[str, str],
    fail_on: Sequence[str],
    cleans_up: bool,
) -> None:
    """Raise a CompleteError if the run that the user wants to resume is already complete.

    Return if the run is unfinished or missing. Raise a RequestError if a file of the complete run
    is damaged, or if the run had another command, other weights or other input files. ``images``
    and ``inputs`` (files of ``--input``) map each file to its SHA-256; hookcli does not compare an
    empty hash or mapping. Findings of the rules in ``fail_on`` change the exit code of the
    CompleteError. If ``cleans_up``, hookcli deletes the saved chunks that the complete run left
    behind.
    """
    folder = find_folder(path)
    if folder is None:
        return
    folder.refuse_locked()
    run = f"the run in {str(path)!r}"
    held, data = find_run(folder), folder.read(MANIFEST)
    if held is None or held.complete is None or data is None:
        return
    try:
        document, done = decode_both(data, Manifest)
    except DamagedError as error:
        what = f"`resume`: {str(path / MANIFEST)!r} is damaged: {error}"
        raise RequestError(what, _RUN_AGAIN) from error
    wanted: dict[str, object] = {"hookcli": metadata.version("hookcli")}
    wanted["command"] = list(plain(command))
    if inputs:
        wanted["code"] = {**done.code, **inputs}
    if weights_sha256:
        wanted["model"] = {"sha256": weights_sha256}
    for difference in list_differences(document, wanted):
        hint = "choose another folder with `out`, or start again with `overwrite=True`"
        raise RequestError(f"`resume`: {run} was done {difference}", hint)
    if images and (difference := _compare_images(done, images)):
        raise RequestError(f"`resume`: {run} is complete, {difference}", _RUN_AGAIN)
    sizes = held.complete.sizes
    for damage in list_damage(sizes, folder.measure(filter(is_run_file, sizes)).get).values():
        raise RequestError(f"`resume`: {run} is complete, but {damage}", _RUN_AGAIN)
    left = {name for name in held.known if name.startswith(f"{PARTS}/") and folder.is_file(name)}
    if cleans_up and left:
        try:
            with folder.lock():
                folder.remove(left)
        except OSError as error:
            raise cannot_write(path, error) from error
    failed = [rule for rule in fail_on if any(each.rule == rule for each in done.findings)]
    parts = [f"{run} is complete"]
    if done.skipped:
        parts.append(f"{count(len(done.skipped), 'image')} skipped, see skipped.csv")
    if failed:
        parts.append(f"`fail_on` found {', '.join(failed)}")
    complete = CompleteError("; ".join(parts))
    complete.exit_code = choose_code(failed=bool(failed), skipped=bool(done.skipped))
    raise complete


def _compare_images(done: Manifest, images: Mapping[str, str]) -> str:
    """Describe how ``images`` differ from the finished run's images; "" if they do not differ."""
    # If the SHA-256 of a file in ``images`` is empty, only the name is compared.
    images = plain({**images})  # as names are in the manifest
    used = {image.file: image.sha256 for image in done.images}
    known = {*used, *(image.file for image in done.skipped)}
    differences = {
        "but without {}": [file for file in images if file not in known],
        "but with {}, which is not given now": [file for file in used if file not in images],
        "but {} has changed since": [
            file for file, sha256 in images.items() if sha256 and used.get(file, sha256) != sha256
        ],
    }
    for what, files in differences.items():
        if files:
            return what.format(repr(files[0]) + and_more(len(files) - 1))
    return ""
