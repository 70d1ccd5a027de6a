"""The messages about models from other libraries, hubs and files."""

from __future__ import annotations

import argparse
import shlex
import shutil
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from hookcli.errors import RequestError, WeightsError
from hookcli.networks.elsewhere import find_elsewhere, find_kind, save_line
from hookcli.networks.sources import SOURCES, find_model
from hookcli.networks.weights_file import read_weights_file

NET = nn.Sequential(nn.Conv2d(3, 2, 1))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    state, pixels = NET.state_dict(), torch.rand(1, 3, 4, 4)
    for name, content in {
        "whole.pt": NET,
        "trained.pt": {"model": NET, "epoch": 3},
        "args.ckpt": {"state_dict": state, "args": argparse.Namespace(lr=0.1)},
        "net.ckpt": {"state_dict": state, "hyper_parameters": {"loss": nn.ReLU()}},
        "plain.pt": state,
    }.items():
        torch.save(content, folder / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # TorchScript is deprecated
        torch.jit.trace(NET, pixels).save(folder / "script.pt")
    torch.export.save(torch.export.export(NET, (pixels,)), folder / "program.pt2")
    (folder / "model.onnx").write_bytes(b"\x08\x08")
    return folder


@pytest.fixture(autouse=True)
def _in_a_copy(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def test_a_file_is_recognized_by_its_content():
    assert {file.name: find_kind(file).what for file in sorted(Path().iterdir())} == {
        "args.ckpt": "more than tensors (argparse.Namespace)",
        "model.onnx": "an ONNX graph",
        "net.ckpt": "more than tensors (torch.nn.modules.activation.ReLU)",
        "plain.pt": "weights",
        "program.pt2": "an exported program",
        "script.pt": "a TorchScript program",
        "trained.pt": "a whole model (torch.nn.modules.container.Sequential)",
        "whole.pt": "a whole model (torch.nn.modules.container.Sequential)",
    }


@pytest.mark.filterwarnings("ignore:.torch.jit.load. is deprecated:FutureWarning")
def test_the_line_that_saves_the_weights_of_a_file_alone_does_so():
    expected = NET.state_dict()
    for name in ("args.ckpt", "net.ckpt", "program.pt2", "script.pt", "trained.pt", "whole.pt"):
        line = save_line(Path(name), find_kind(Path(name)).state)
        exec(shlex.split(line)[2], {})  # noqa: S102
        saved = torch.load(f"{Path(name).stem}-weights.pt", weights_only=True)
        assert saved.keys() == expected.keys(), name
        assert all(torch.equal(saved[key], expected[key]) for key in expected), name


@pytest.mark.parametrize("name", ["whole.pt", "trained.pt"])
def test_the_file_that_the_hint_writes_makes_the_whole_model(name):
    Path("net.py").write_text("of the user")
    echo, _, file = shlex.split(find_elsewhere(name, SOURCES).hint.replace(";", " ;", 2))[1:4]
    assert not Path(file).exists()
    Path(file).write_text(echo.replace(" ;", ";"))
    assert isinstance(find_model(f"{file}:make", 0).builder(), nn.Sequential)


def test_a_file_from_before_torch_1_6_is_reported_too():
    for name, content in {"whole.pt": NET, "plain.pt": NET.state_dict()}.items():
        before = find_kind(Path(name))
        torch.save(content, name, _use_new_zipfile_serialization=False)
        assert find_kind(Path(name)) == before


def test_a_damaged_archive_is_an_unknown_file_and_no_model():
    data = Path("whole.pt").read_bytes()
    at = data.index(b"PK\x01\x02")
    Path("w.pt").write_bytes(data[: at + 8] + b"\x01" + data[at + 9 :])  # "it is encrypted"
    assert find_elsewhere("w.pt", SOURCES).message == "'w.pt' is a file without a model"
    with pytest.raises(WeightsError):
        read_weights_file(Path("w.pt"))


@pytest.mark.parametrize(("before", "what"), [(0, "more than tensors (os.system)"), (1 << 20, "")])
def test_a_large_pickle_in_a_small_archive_is_not_read_to_its_end(before, what):
    with zipfile.ZipFile("w.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/data.pkl", b"\x80\x02" + b"N" * before + b"cos\nsystem\n")
    assert find_kind(Path("w.pt")).what == what


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("weights/best.pt", "there is no file 'weights/best.pt'"),
        ("photos/cat.png", "'photos/cat.png' is a file without a model"),
        ("photos/net:make", "no model is called 'photos/net:make'"),
    ],
)
def test_the_name_of_a_file_here_is_not_taken_for_that_of_a_hub(name, message):
    Path("photos").mkdir()
    for file in ("cat.png", "net.py"):
        Path("photos", file).write_text("", encoding="utf-8")
    error = find_elsewhere(name, SOURCES)
    assert error.message == message
    assert "import" not in error.hint


@pytest.mark.parametrize(
    ("name", "message", "typed"),
    [
        ("yolo11n", "'yolo11n' is a model of ultralytics", 'YOLO("yolo11n.pt").model'),
        (
            "microsoft/resnet-50",
            "'microsoft/resnet-50' is the name of a model on the hub",
            "hf:microsoft/resnet-50",
        ),
        (
            "facebookresearch/dinov2:dinov2_vits14",
            "'facebookresearch/dinov2:dinov2_vits14' is a model of torch.hub",
            'torch.hub.load("facebookresearch/dinov2", "dinov2_vits14")',
        ),
        (
            "hf-hub:timm/resnet18.a1_in1k",
            "no model is called 'hf-hub:timm/resnet18.a1_in1k'",
            "timm:resnet18.a1_in1k",
        ),
        (
            "torchvision.models.resnet18",
            "no model is called 'torchvision.models.resnet18'",
            "resnet18",
        ),
        ("resnet50d", "torchvision has no 'resnet50d', but timm has", "timm:resnet50d"),
        ("nofile.pth", "there is no file 'nofile.pth'", "FILE.py:FUNCTION"),
        (r"C:\net.py", r"'C:\\net.py' is a file, not a model in it", "FILE.py:FUNCTION"),
    ],
)
def test_the_name_of_a_model_of_another_library_is_answered_with_what_to_type(name, message, typed):
    with pytest.raises(RequestError) as refused:
        find_model(name, 0)
    assert refused.value.message == message
    assert typed in refused.value.hint


@pytest.mark.parametrize(
    ("name", "message", "typed"),
    [
        ("plain.pt", "'plain.pt' holds weights", "`weights='plain.pt'`"),
        (
            "program.pt2",
            "'program.pt2' holds an exported program",
            "`weights='program-weights.pt'`",
        ),
        (
            "model.onnx",
            "'model.onnx' holds an ONNX graph",
            "the code that it was made from: FILE.py:FUNCTION",
        ),
    ],
)
def test_a_file_in_place_of_a_model_is_answered_with_what_to_type(name, message, typed):
    error = find_elsewhere(name, SOURCES)
    assert error.message.partition(", and")[0] == message
    assert typed in error.hint


@pytest.mark.parametrize("name", ["resnet18", "timm:resnet50d", "net.py:make", "package.net:make"])
def test_a_name_that_hookcli_may_know_is_left_alone(name):
    assert find_elsewhere(name, SOURCES) is None
