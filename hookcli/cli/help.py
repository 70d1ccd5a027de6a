"""Format the help of commands without Rich, which saves 70 ms; refuse repeated options."""

from __future__ import annotations

import re
from collections import Counter
from copy import copy
from typing import Any

from typer.core import TyperCommand

from hookcli.errors import RequestError

WIDTH = 120  # the largest width of a help text, in columns
EXAMPLES = "\n\nExamples:\n"

# The options used most, which come first in the help of a command with many options.
MOST_USED = (
    *("layers", "against", "target", "cam", "saliency", "out", "overwrite", "weights", "device"),
    *("size", "channels", "save", "attention", "format"),
)
_MOST_USED_PANEL = "Used most"
_MOST_OF_THEM = 10
_MANY = 20  # options

# The meaning of placeholders such as FORM, if it takes more than one line.
NOTES = {
    "FORM": (
        "FORM chooses layers; several are separated by commas",
        (
            ("conv linear norm act pool", "the layers of a family; also attention, dropout"),
            ("leaf all", "layers without submodules; every module"),
            ("Conv2d", "a class"),
            ("layer1.0.conv2", "a module path, as hookcli layers lists it"),
            ("'layer1.*' 're:REGEX'", "matching paths; * also matches dots"),
            ("'conv[16]' 'conv[-1]'", "the 16th, counted from 1; the last"),
            ("'op:add' 'op:*'", "additions between modules; all operations"),
            ("@FILE", "a file with one form per line"),
        ),
    ),
    "MODEL|RUN": (
        "From a RUN, hookcli reads all saved layers; --layers and --exclude select some",
        (
            ("layer1.0.conv2", "a layer that the run saved"),
            ("'layer1.*'", "all that match, with * and ?"),
        ),
    ),
    "CHANGE": (
        "CHANGE is [SIDE:]FORM[{CHANNELS}]:WHAT; several apply in order",
        (
            ("'conv[3]:zero'", "WHAT: zero, mean, scale=, set=, clamp=LO:HI, clip-norm="),
            ("'layer1.*{3,7-9}:scale=2'", "only these channels, counted from 0"),
            ("'input:fc:zero'", "SIDE: output or input; of gradients: grad_output, grad_input"),
            ("'param:*.bias:zero'", "hookcli gradients: the gradient of a parameter"),
        ),
    ),
    "VARIANT": (
        "VARIANT says what is different in B; several apply together",
        (
            ("model=M weights=W dtype=D", "another model, other weights, another dtype"),
            ("mode=M device=D seed=N", "as the options of these names"),
            ("threads=N channels-last", "another number of threads; another memory format"),
            ("edit=CHANGE prune=P", "as in hookcli inspect"),
            ("image=FILE", "another image"),
            ("batch=N repeat", "among N other images; the same model a second time"),
            ("autocast=D", "under torch.autocast, in float16 or bfloat16"),
            ("preprocess=RECIPE", "the image prepared in another way"),
            ("onnx onnx=FILE", "the model exported to ONNX; an existing file"),
            ("torch-export torch-export=FILE", "a program of torch.export; FILE may run code"),
            ("compile", "the model compiled by torch.compile"),
        ),
    ),
    "RECIPE": (
        "RECIPE changes how images are prepared; several words are separated by commas",
        (
            ("resize:bicubic", "nearest, bilinear, bicubic, area or lanczos"),
            ("library=opencv antialias=off", "by pillow, opencv or torch; without smoothing"),
            ("fit=letterbox crop=N", "crop, stretch, or grey borders; side of the input"),
            ("order=bgr scale=1 mean=M std=S", "blue first; pixels from 0 to 255; M or M/M/M"),
        ),
    ),
}


class PanelCommand(TyperCommand):
    """Refuses repeated options; its help has panels of options, and the docstring's "Examples:"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; raise a RequestError if an option lacks its value, or has two."""
        values, _, given = self.make_parser(ctx).parse_args(args=list(args))
        options = (each for each in self.get_params(ctx) if each.param_type_name == "option")
        known = {name for option in options for name in option.opts}
        for option, number in Counter[Any](given).items():
            taken = values.get(option.name)
            if not known.isdisjoint(taken if isinstance(taken, list) else [taken]):
                hint = ": ".join(describe_option(option, ctx))
                raise RequestError(f"{option.opts[-1]} needs a value", hint)
            has_one = option.param_type_name == "option" and not option.multiple
            if number > 1 and has_one and (not option.is_flag or option.secondary_opts):
                hint = ": ".join(describe_option(option, ctx))
                raise RequestError(f"{option.opts[-1]} can be given only once", hint)
        return list(super().parse_args(ctx, args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *map(name_argument, arguments)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        described = copy(self)
        described.help = (self.help or "").partition(EXAMPLES)[0]
        TyperCommand.format_help_text(described, ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters: list[Any] = self.get_params(ctx)
        by_name = {each.name: each for each in parameters} if len(parameters) >= _MANY else {}
        first = [by_name[name] for name in MOST_USED if name in by_name][:_MOST_OF_THEM]
        panels = {"Arguments": [], _MOST_USED_PANEL: [describe_option(each, ctx) for each in first]}
        for each in parameters:
            if each.param_type_name == "argument":
                panels["Arguments"].append((name_argument(each), each.help))
            elif each not in first:
                panel = "Help" if each.name == "help" else each.rich_help_panel
                panels.setdefault(panel or "Options", []).append(describe_option(each, ctx))
        words = {re.split(r"[=\[]", getattr(each, "metavar", None) or "")[0] for each in parameters}
        notes = [note for word, note in NOTES.items() if word in words]
        for title, records in (*panels.items(), *notes):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        examples = (self.help or "").partition(EXAMPLES)[2].split("\n")
        if lines := [line.strip() for line in examples if line.strip()]:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in lines))


def name_argument(argument: Any) -> str:
    name = f"{argument.metavar}..." if argument.nargs == -1 else argument.metavar
    return name if argument.required else f"[{name}]"


def describe_option(option: Any, context: Any) -> tuple[str, str]:
    shown = copy(option)
    shown.min = shown.max = None
    shown.required = False
    if option.multiple and not option.metavar.endswith(",FORM]"):  # [,FORM] says how to repeat
        shown.metavar = f"{option.metavar}..."
    names, text = shown.get_help_record(context)
    return names, text
