"""What to type instead of a word that hookcli does not know, but other tools do."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Options that other tools have, and what is typed here; the first word is an option of the command.
_MEANT = {
    "--batch": "--batch-size N",
    "--bf16": "--dtype bfloat16",
    "--checkpoint": "--weights FILE",
    "--ckpt": "--weights FILE",
    "--cpu": "--device cpu",
    "--csv": "--format csv",
    "--cuda": "--device cuda",
    "--dest": "--out DIR",
    "--eval": "--mode eval",
    "--force": "--overwrite",
    "--fp16": "--dtype float16",
    "--gpu": "--device cuda",
    "--half": "--dtype float16",
    "--image-size": "--size N",
    "--img-size": "--size N",
    "--input-size": "--size N",
    "--jobs": "--workers N",
    "--json": "--format json",
    "--jsonl": "--format jsonl",
    "--layer": "--layers FORM",
    "--markdown": "--format md",
    "--module": "--layers FORM",
    "--modules": "--layers FORM",
    "--mps": "--device mps",
    "--num-workers": "--workers N",
    "--output": "--out DIR",
    "--output-dir": "--out DIR",
    "--pretrained": "--weights pretrained",
    "--silent": "--quiet",
    "--state-dict": "--weights FILE",
    "--train": "--mode train",
    "--weight": "--weights FILE",
}
_PAGE = "each run writes a page, report.html, into its folder: open it in a browser"
# What other tools have an option for, and hookcli has not.
_SAID = {
    "--gradcam": "hookcli gradients MODEL IMAGE --cam FORM",
    "--grad-cam": "hookcli gradients MODEL IMAGE --cam FORM",
    "--flops": "hookcli layers MODEL --sort flops",
    "--html": _PAGE,
    "--image": "images are named without an option: hookcli inspect MODEL IMAGE...",
    "--images": "images are named without an option: hookcli inspect MODEL IMAGE...",
    "--input": "a model with several inputs takes four lines of your own: docs/guide/models.md",
    "--num-classes": "--model-arg num_classes=N",
    "--model": "the model is named without an option: hookcli inspect MODEL IMAGE...",
    "--open": _PAGE,
    "--show": _PAGE,
    "--summary": "hookcli layers MODEL",
}
# Commands that other tools have, and what is typed here.
_COMMANDS_MEANT = {
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
    """Return what to type instead of an option that a command does not have; empty if unknown.

    Args:
        word: the option.
        command: the command.
        options: the options of each command.
    """
    own = options.get(command, ())
    meant = _MEANT.get(word, "")
    if meant.partition(" ")[0] in own:
        return meant
    if word in _SAID:
        return _SAID[word]
    near = difflib.get_close_matches(word, own, n=_FEW, cutoff=0.7)
    elsewhere = [f"hookcli {name} {word}" for name, has in options.items() if word in has]
    if elsewhere:
        return f"{' or '.join(elsewhere[:_FEW])} has it"
    return " or ".join(near)


def guess_command(words: Sequence[str], commands: Iterable[str]) -> str:
    """Return what to type instead of words of which the first is no command."""
    if words[0] in _COMMANDS_MEANT:
        return f"hookcli {_COMMANDS_MEANT[words[0]]}"
    near = difflib.get_close_matches(words[0], list(commands), n=1)
    if near:
        return " ".join(["hookcli", near[0], *words[1:]])
    if words[0].lower().endswith(_PICTURES) and words[1:]:
        return " ".join(["hookcli", "inspect", words[1], words[0], *words[2:]])
    if re.fullmatch(r"[\w.:/-]*[\d:][\w.:/-]*", words[0]):  # resnet18, timm:NAME, net.py:make
        command = "inspect" if words[1:] else "layers"
        return " ".join(["hookcli", command, *words])
    return ""


def list_options(commands: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the long options of each command, which is built for it."""
    return {
        name: [
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--")
        ]
        for name, command in commands.items()
    }
