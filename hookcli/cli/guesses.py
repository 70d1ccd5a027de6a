"""Guess what to type instead of an option or command that hookcli does not have."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Replacements for options of other tools. One that begins with an option is suggested only for
# commands that have this option.
_INSTEAD = {
    option: meant
    for meant, options in {
        "--batch-size N": "--batch",
        "--device cpu": "--cpu",
        "--device cuda": "--cuda --gpu",
        "--device mps": "--mps",
        "--dtype bfloat16": "--bf16",
        "--dtype float16": "--fp16 --half",
        "--format csv": "--csv",
        "--format json": "--json",
        "--format jsonl": "--jsonl",
        "--format md": "--markdown",
        "--layers FORM": "--layer --module --modules",
        "--mode eval": "--eval",
        "--mode train": "--train",
        "--model-arg num_classes=N": "--num-classes",
        "--out DIR": "--dest --output --output-dir",
        "--overwrite": "--force",
        "--quiet": "--silent",
        "--size N": "--image-size --img-size --input-size",
        "--weights FILE": "--checkpoint --ckpt --state-dict --weight",
        "--weights pretrained": "--pretrained",
        "--workers N": "--jobs --num-workers",
        "hookcli gradients MODEL IMAGE --cam FORM": "--gradcam --grad-cam",
        "hookcli layers MODEL --sort flops": "--flops",
        "hookcli layers MODEL": "--summary",
        "each run writes a page, report.html, into its folder: open it in a browser": (
            "--html --open --show"
        ),
        "images are named without an option: hookcli inspect MODEL IMAGE...": "--image --images",
        "the model is named without an option: hookcli inspect MODEL IMAGE...": "--model",
    }.items()
    for option in options.split()
}
# For commands of other tools, what to type instead.
_COMMAND_SYNONYMS = {
    "gradcam": "gradients MODEL IMAGE --cam FORM",
    "help": "COMMAND --help",
    "list": "models",
    "run": "inspect MODEL IMAGE",
    "summary": "layers MODEL",
    "version": "--version",
    "view": "inspect MODEL IMAGE",
}
_FEW = 3
_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")


def guess_option(word: str, command: str, options: Mapping[str, Sequence[str]]) -> str:
    own = options.get(command, ())
    meant = _INSTEAD.get(word, "")
    if meant and (not meant.startswith("--") or meant.partition(" ")[0] in own):
        return meant
    near = difflib.get_close_matches(word, own, n=_FEW, cutoff=0.7)
    elsewhere = [f"hookcli {name} {word}" for name, has in options.items() if word in has]
    return f"{' or '.join(elsewhere[:_FEW])} has it" if elsewhere else " or ".join(near)


def guess_command(words: Sequence[str], commands: Iterable[str]) -> str:
    if words[0] in _COMMAND_SYNONYMS:
        return f"hookcli {_COMMAND_SYNONYMS[words[0]]}"
    near = difflib.get_close_matches(words[0], list(commands), n=1)
    if near:
        return " ".join(["hookcli", near[0], *words[1:]])
    if words[0].lower().endswith(_PICTURES) and words[1:]:
        return " ".join(["hookcli", "inspect", words[1], words[0], *words[2:]])
    if re.fullmatch(r"[\w.:/-]*[\d:][\w.:/-]*", words[0]):  # resnet18, timm:NAME, net.py:make
        return " ".join(["hookcli", "inspect" if words[1:] else "layers", *words])
    return ""


def list_options(commands: Iterable[Any]) -> dict[str, list[str]]:
    return {
        command.name: [
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--")
        ]
        for command in commands
    }
