"""The recorded command holds every option that changes the result, and no other."""

from __future__ import annotations

from pathlib import Path

from hookcli.config import (
    AblationConfig,
    AblationStyle,
    BackwardStyle,
    FindingRequest,
    FolderRequest,
    GradientsConfig,
    GridStyle,
    ImageRequest,
    InspectConfig,
    MachineRequest,
    ModelRequest,
    RunRequest,
    SaveStyle,
    ScoreRequest,
    TensorRequest,
)
from hookcli.records.command import ablation_command, compare_command, list_differences, to_command

MODEL = ModelRequest(
    "net",
    "random",
    3,
    "cpu",
    "float16",
    64,
    72,
    (0.1, 0.2, 0.3),
    (1.0, 2.0, 3.0),
    "bicubic",
    (("width", "2"),),
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
MODEL_WORDS = (
    "--weights random --seed 3 --device cpu --dtype float16 --size 64 --resize 72 "
    "--mean 0.1,0.2,0.3 --std 1.0,2.0,3.0 --interpolation bicubic --pair c.png"
)
BEGINNING = "net a.png ./-b.png --layers conv --layers fc --exclude conv[1] --model-arg width=2"


def test_the_command_of_an_inspection_holds_every_option_that_is_not_the_default():
    config = InspectConfig(
        RUN,
        grids=GridStyle("layers", 8, (1, 2), "mean", "layer", "viridis", 32, "light", "pdf"),
        tensors=TensorRequest(SaveStyle("mean", "float16", (0,)), sketch=True),
        findings=FindingRequest((("dead", 0.5),), ("nan", "inf")),
        at="both",
        batch_size=2,
        focus=(1, 2, 3, 4),
        overview=True,
        top_images=3,
    )
    assert " ".join(to_command(config)) == (
        f"hookcli inspect {BEGINNING} --at both {MODEL_WORDS} --focus 1,2,3,4 --batch-size 2 "
        "--top-images 3 --grids layers --top 8 --channels 1,2 --rank mean --scale layer "
        "--colormap viridis --tile 32 --theme light --picture-format pdf --save tensors "
        "--pool mean --tensor-dtype float16 --tensor-channels 0 --rule dead=0.5 "
        "--edit conv:zero --prune fc=0.5 --fail-on nan,inf --clip --overview "
        "--sketch --no-recursive -0"
    )


def test_the_command_of_a_run_with_defaults_is_as_short_as_can_be():
    request = RunRequest(ModelRequest("net"), ImageRequest(("a.png",)))
    folder = FolderRequest(Path("out"), overwrite=True, resume=True, verify=True)
    config = InspectConfig(request, folder, machine=MachineRequest(3, 2))
    assert to_command(config) == ("hookcli", "inspect", "net", "a.png", "--layers", "conv")


def test_the_command_of_gradients_holds_what_the_backward_starts_at():
    style = BackwardStyle(
        "5", "sum", input_grad=True, times_activation=True, cams=("fc",), saliency=True
    )
    config = GradientsConfig(RUN, tensors=TensorRequest(sketch=False), backward=style)
    assert " ".join(to_command(config)) == (
        f"hookcli gradients {BEGINNING} {MODEL_WORDS} --target 5 --score sum --edit conv:zero "
        "--prune fc=0.5 --cam fc --clip --no-sketch --no-recursive -0 --input-grad "
        "--times-activation --saliency"
    )


def test_the_commands_of_an_ablation_and_of_a_comparison():
    config = AblationConfig(RUN, ScoreRequest("5", "sum"), AblationStyle((1, 2), 4))
    assert " ".join(ablation_command(config)) == (
        f"hookcli ablate {BEGINNING} {MODEL_WORDS} --target 5 --score sum --channels 1,2 "
        "--batch-size 4 --no-recursive -0"
    )
    assert " ".join(compare_command(RUN, "input")) == (
        f"hookcli compare {BEGINNING} --at input {MODEL_WORDS} --edit conv:zero --prune fc=0.5 "
        "--clip --no-recursive -0"
    )


def test_a_difference_between_lists_of_numbers_is_told_in_words():
    begun, wanted = ({"input_shape": [1, 3, side, side]} for side in (224, 256))
    assert list(list_differences(begun, wanted)) == [
        "with other input_shape: with 224 224, not 256 256"
    ]
