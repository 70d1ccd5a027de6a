"""Name a run's folder (``hookcli-runs/MODEL-IMAGE``), plan its files, and check what it holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.images.filesystems import choose_filesystem
from hookcli.outside.files import hash_file, real_path, safe_name, split_key
from hookcli.outside.urls import to_local
from hookcli.records.command import command_words
from hookcli.store.admission import check_folder
from hookcli.store.finished import finish_resume
from hookcli.store.locations.names import FOLDERS, PlannedNames
from hookcli.store.ownership import refuse_run_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import RunConfig
    from hookcli.images.read import ImageSource
    from hookcli.outside.urls import Location
    from hookcli.products.product import Scope


def name_folder(config: RunConfig, sources: Sequence[ImageSource]) -> Location:
    name, given = sources[0].key, config.run.images.names
    if len(sources) > 1 or len(given) > 1:
        first = to_local(given[0])
        name = choose_filesystem(first).name_folder(first)
    run = f"{safe_name(config.run.model.name)}-{safe_name(name)}"
    return config.folder.out or Path("hookcli-runs") / run


def plan_names(scope: Scope, sources: Sequence[ImageSource]) -> PlannedNames:
    from hookcli.products.catalog import list_products  # imports numpy

    folder = scope.config.folder
    claimed = {name for product in list_products(scope) for name in product.claim()}
    return PlannedNames(
        frozenset(source.key for source in sources),
        FOLDERS & claimed,
        frozenset(claimed - FOLDERS),
        scope.style.format,
        replace_run=folder.out is None or folder.resume,
        replace_any=folder.overwrite,
    )


def hash_inputs(config: RunConfig) -> dict[str, str]:
    """Map each file of ``--input`` and ``--target like:IMAGE`` to its SHA-256."""
    targets = () if config.backward is None else config.backward.aims
    likes = [text[5:] for text in targets if text.startswith("like:")]
    likes += [text for _, text in config.run.model.inputs if text.endswith(".npy")]
    return {file: hash_file(file) for file in likes if Path(file).is_file()}


def check_run_folder(scope: Scope, sources: Sequence[ImageSource], *, cleans_up: bool) -> None:
    # ``cleans_up`` says whether to delete the chunks that a complete run left behind.
    config = scope.config
    folder = name_folder(config, sources)
    if isinstance(folder, Path):
        refuse_run_folder(real_path(folder).parent)
    if config.folder.resume:
        model, known = config.run.model, ""
        if model.is_file:
            from hookcli.networks.graph_file import hash_graph  # for most runs not needed

            known = hash_graph(Path(model.name))
        elif os.path.isfile(file := split_key(model.weights)[0]):  # noqa: PTH113  may raise
            known = hash_file(file)
        images = {source.name: source.kept.sha256 if source.kept else "" for source in sources}
        command = command_words(config.command, config)
        rules, inputs = config.findings.fail_on, hash_inputs(config)
        finish_resume(
            folder, command, known, images, inputs=inputs, fail_on=rules, cleans_up=cleans_up
        )
    check_folder(folder, plan_names(scope, sources))
