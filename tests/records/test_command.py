"""The recorded command holds every option that changes the result, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from hookcli.cli.command import make_command
from hookcli.config import (
    AttentionRequest,
    FindingRequest,
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    MachineRequest,
    ModelRequest,
    RunRequest,
    SaveStyle,
    TensorRequest,
)
from hookcli.records.command import command_words, list_differences
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import verb
from hookcli.verbs.outcome import Outcome


class Told(Outcome):
    def text(self):
        return ""


MODEL = ModelRequest(
    "net",
    "random",
    3,
    "cpu",
    "float16",
    64,
    72,
    mean=(0.1, 0.2, 0.3),
    std=(1.0, 2.0, 3.0),
    interpolation="bicubic",
    preprocess="fit=stretch,order=bgr",
    arguments=(("width", "2"),),
)
RUN = RunRequest(
    MODEL,
    ImageRequest(
        ("a.png", "-b.png"), recursive=False, null_separated=True, pair="c.png", clip=True
    ),
    layers=("conv", "fc"),
    exclude=("conv[1]",),
    edits=("conv:zero",),
    prunes=("fc=0.5",),
)
RUN_WORDS = (
    "net a.png ./-b.png --layers conv --layers fc --weights random --seed 3 --device cpu "
    "--dtype float16 --size 64 --resize 72 --mean 0.1,0.2,0.3 --std 1.0,2.0,3.0 "
    "--interpolation bicubic --preprocess fit=stretch,order=bgr --model-arg width=2 "
    "--no-recursive -0 --pair c.png --clip --exclude conv[1] --edit conv:zero --prune fc=0.5"
)


def test_the_command_of_an_inspection_holds_every_option_that_is_not_the_default():
    config = InspectConfig(
        RUN,
        grids=GridStyle("layers", 8, (1, 2), "mean", "layer", "viridis", 32, "light", "pdf"),
        tensors=TensorRequest(SaveStyle("mean", "float16", (0,)), sketch=True, attention=True),
        findings=FindingRequest((("dead", 0.5),), ("nan", "inf")),
        at="both",
        batch_size=2,
        focus=(1, 2, 3, 4),
        attention=AttentionRequest(("all",), (5, 6), rollout=True),
        overview=True,
        top_images=3,
    )
    assert " ".join(command_words("inspect", config)) == (
        f"hookcli inspect {RUN_WORDS} --grids layers --top 8 --channels 1,2 --rank mean "
        "--scale layer --colormap viridis --tile 32 --theme light --picture-format pdf "
        "--save tensors --pool mean --tensor-dtype float16 --tensor-channels 0 --sketch "
        "--save attention --rule dead=0.5 --fail-on nan,inf --at both --batch-size 2 "
        "--focus 1,2,3,4 --attention all --patch 5,6 --rollout --overview --top-images 3"
    )


def test_the_command_of_a_run_with_defaults_is_as_short_as_can_be():
    request = RunRequest(ModelRequest("net"), ImageRequest(("a.png",)))
    folder = FolderRequest(Path("out"), overwrite=True, resume=True, verify=True)
    config = InspectConfig(request, folder, machine=MachineRequest(3, 2))
    words = command_words("inspect", config)
    assert words == ("hookcli", "inspect", "net", "a.png", "--layers", "conv")


def test_the_words_of_a_command_fill_the_request_that_they_were_made_of():
    config = InspectConfig(
        RUN,
        grids=GridStyle("layers", None, None, "mean", "layer", "viridis", 32, "light", "pdf"),
        tensors=TensorRequest(SaveStyle("4", "float16", (0,)), sketch=False, attention=True),
        findings=FindingRequest((("dead", 0.5),), ("nan", "inf")),
        at="both",
        focus=(1, 2, 3, 4),
        attention=AttentionRequest(("all",), (5, 6), rollout=True),
    )
    seen = []

    @verb()
    def record(call: VerbCall, config: InspectConfig) -> Told:
        seen.append(config)
        return Told()

    app = typer.Typer()
    app.command()(make_command(getattr(record, "verb")))  # noqa: B009
    written = command_words("inspect", config)[2:]
    words = ["@b.txt" if word == "./-b.png" else word for word in written]
    app(args=words, standalone_mode=False)
    names = ("a.png", "@b.txt")  # the option -0 needs a list
    images = replace(config.run.images, names=names)
    assert seen == [replace(config, run=replace(config.run, images=images))]


def ordered(options):
    return {"command": f"hookcli inspect net a.png {options}".split()}


def test_two_commands_with_the_same_options_in_another_order_do_not_differ():
    begun = ordered("--at both --layers conv --layers fc -0")
    wanted = ordered("--layers conv --layers fc -0 --at both")
    turned = ordered("--layers fc --layers conv -0 --at both")
    assert list(list_differences(begun, wanted)) == []
    assert list(list_differences(begun, turned)) == [
        "with --layers conv --layers fc, not --layers fc --layers conv"
    ]
    begun, wanted = {"images": ["a.png", "b.png"]}, {"images": ["b.png", "a.png"]}
    assert list(list_differences(begun, wanted)) == [
        "with other images: with a.png b.png, not b.png a.png"
    ]
