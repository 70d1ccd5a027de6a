"""Whether every option has a value that exists: what can be refused before anything is read."""

from __future__ import annotations

import difflib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from hookcli import config as choices
from hookcli.config import LARGEST_SIDE
from hookcli.edits.grammar import read_edit
from hookcli.edits.prune_grammar import read_prune
from hookcli.errors import OutputError, RequestError
from hookcli.store.ownership import find_holder
from hookcli.summary.rules import RULES

if TYPE_CHECKING:
    from hookcli.config import InspectConfig


def check_values(config: InspectConfig) -> None:
    """See that every option has a value that exists.

    Raises:
        RequestError: one has not.
    """
    grids, model = config.grids, config.model
    for name, value, known in (
        ("--at", config.at, choices.At),
        ("--dtype", model.dtype, choices.Dtype),
        ("--grids", grids.mode, choices.GridMode),
        ("--rank", grids.rank, choices.Rank),
        ("--scale", grids.scale, choices.Scale),
        ("--on-error", config.on_error, choices.OnError),
    ):
        if value not in get_args(known):
            raise RequestError(
                f"{name} cannot be {value!r}", f"one of: {', '.join(get_args(known))}"
            )
    if any(channel < 0 for channel in grids.channels or ()):
        raise RequestError("--channels are counted from 0, as in the tensor")
    for name, number in (
        ("--top", 1 if grids.top is None else grids.top),
        ("--tile", grids.tile),
        ("--batch-size", config.batch_size),
        ("--size", 1 if model.size is None else model.size),
        ("--resize", 1 if model.resize is None else model.resize),
    ):
        if number < 1:
            raise RequestError(f"{name} must be at least 1, not {number}")
    for name, side in (("--size", model.size), ("--resize", model.resize)):
        if side is not None and side > LARGEST_SIDE:
            raise RequestError(f"{name} must be at most {LARGEST_SIDE}, not {side}")
    _check_save(config)
    _check_backward(config)
    if config.top_images < 0:
        raise RequestError(f"--top-images must be at least 0, not {config.top_images}")
    if config.workers is not None and config.workers < 0:
        raise RequestError(f"--workers must be at least 0, not {config.workers}")
    _check_rules(config)
    _check_focus(config)
    _check_colours("--mean", model.mean)
    _check_colours("--std", model.std)
    if model.std is not None and min(model.std) <= 0:
        raise RequestError("--std must be greater than 0")
    if not 0 <= model.seed < 1 << 63:
        raise RequestError(f"--seed must be from 0 to 2**63 - 1, not {model.seed}")
    if grids.mode != "none" and grids.colormap != choices.EMBER:
        from hookcli.render.draw.canvas import load_palette

        load_palette(grids.colormap)


def _check_save(config: InspectConfig) -> None:
    pool = "none" if config.save is None else config.save.pool
    if pool not in ("none", "mean", "max") and not (pool.isdecimal() and int(pool) > 0):
        raise RequestError(f"--pool cannot be {pool!r}", "one of: none, mean, max, or N")
    if not config.max_disk > 0:  # nor not a number
        raise RequestError(f"--max-disk must be greater than 0, not {config.max_disk:g}")
    _check_weights_file(config)


def _check_backward(config: InspectConfig) -> None:
    """See that edits and prunes can be read, and what a backward starts at."""
    for text in config.prunes:
        read_prune(text)
    for text in config.edits:
        side = read_edit(text, config.edited_side).side
        if config.backward is None and side not in ("output", "input"):
            raise RequestError(
                f"--edit {text!r}: {side} is a gradient, and inspect has none",
                "edit gradients in: hookcli gradients",
            )
    style = config.backward
    if style is None:
        return
    if ":" not in style.score and style.score not in choices.SCORES:
        raise RequestError(
            f"--score cannot be {style.score!r}",
            f"one of: {', '.join(choices.SCORES)}, FILE.py:FUNCTION",
        )
    if style.score == "sum" and style.target != "predicted":
        raise RequestError("--score sum adds up the whole output and has no --target")


def _check_weights_file(config: InspectConfig) -> None:
    """See that the pruned weights can be written.

    Raises:
        RequestError: nothing is pruned, or the file has another ending.
        OutputError: there is such a file, or no folder for it.
    """
    file = config.save_weights
    if file is None:
        return
    if not config.prunes:
        raise RequestError("--save-weights writes what --prune made, and needs it")
    if file.suffix != ".safetensors":
        raise RequestError(
            f"--save-weights writes .safetensors, not {file.name!r}",
            f"--save-weights {file.with_suffix('.safetensors')}",
        )
    if file.is_symlink():
        raise OutputError(
            f"{str(file)!r} is a link, which is never followed", "name the file itself"
        )
    holder = find_holder(file, config.out)
    if holder is not None:
        raise OutputError(
            f"{str(file)!r} is a file of the run in {str(holder)!r}", "name a file outside of runs"
        )
    weights = Path(config.model.weights)
    if file.exists() and weights.exists() and file.samefile(weights):
        raise OutputError(f"{str(file)!r} holds the weights that are pruned", "name another file")
    if not os.access(file.parent, os.W_OK | os.X_OK) or file.is_dir():
        raise OutputError(f"cannot write {str(file)!r}", "name a file in a folder that is there")
    if file.exists() and not config.overwrite:
        raise OutputError(
            f"{str(file)!r} is there already", "replace it with --overwrite, or name another file"
        )


def _check_rules(config: InspectConfig) -> None:
    for name in (*config.fail_on, *(rule for rule, _ in config.rules)):
        if name not in RULES:
            close = difflib.get_close_matches(name, RULES, n=3)
            raise RequestError(
                f"no rule is called {name!r}", f"one of: {', '.join(close or RULES)}"
            )
    if "untrained" in dict(config.rules):
        raise RequestError("untrained has no threshold", "--fail-on untrained ends with code 7")


def _check_focus(config: InspectConfig) -> None:
    if config.focus is not None:
        if len(config.images) != 1:
            raise RequestError("--focus is a box in one image", "give one image")
        if config.grids.mode == "none":
            raise RequestError("--focus ranks the channels of grids, and not with --grids none")
        if min(config.focus) < 0:
            raise RequestError("--focus begins inside the image: X and Y are at least 0")
        if min(config.focus[2:]) < 1:
            raise RequestError("--focus needs a width and a height of at least 1")


def _check_colours(name: str, values: tuple[float, ...] | None) -> None:
    if values is not None and (len(values) != 3 or not all(map(math.isfinite, values))):
        raise RequestError(f"{name} takes three numbers, one a colour: 0.485,0.456,0.406")
