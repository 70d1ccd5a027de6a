"""Which source files count as the code of a model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hookcli.config import ModelRequest
from hookcli.networks.code_files import hash_code, split_name
from hookcli.networks.load import load_model
from hookcli.networks.sources import LIBRARIES

PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/net.py": "from torch import nn\nfrom . import sizes\nfrom .parts.block import Block\n"
    "class Net(nn.Sequential):\n    def __init__(self): super().__init__(Block(*sizes.BOTH))\n",
    "pkg/sizes.py": "import plain\nBOTH = (plain.THREE, 4, 1)\n",
    "pkg/parts/__init__.py": "",
    "pkg/parts/block.py": "from torch.nn import Conv2d\nclass Block(Conv2d): pass\n",
    "pkg/unused.py": "",
    "plain.py": "THREE = 3\n",
}


@pytest.mark.parametrize(
    ("name", "place", "function"),
    [
        ("net.py:make", "net.py", "make"),
        ("package.net:Net.tiny", "package.net", "Net.tiny"),
        (r"C:\net.py:make", r"C:\net.py", "make"),
        ("C:/nets/net.py", "C:/nets/net.py", ""),
        ("net.py:old", "net.py:old", ""),  # a file
        ("nets/net.onnx", "", "nets/net.onnx"),
    ],
)
def test_a_name_is_split_at_its_last_colon_but_not_after_a_drive_or_in_a_file(
    name, place, function
):
    Path("net.py:old").write_text("")
    assert split_name(name) == (place, function)


def code_of(name):
    loaded = load_model(ModelRequest(name, weights="random", device="cpu"))
    return hash_code(loaded.module, [name], LIBRARIES)


def test_the_code_of_a_model_is_its_file_and_what_that_imports_of_the_users():
    for name, text in PACKAGE.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    used = sorted(PACKAGE.keys() - {"pkg/unused.py"})
    expected = {name: hashlib.sha256(PACKAGE[name].encode()).hexdigest() for name in used}
    assert code_of("pkg.net:Net") == expected
    moved = Path("elsewhere/net.py")
    moved.parent.mkdir()
    moved.write_text("from pkg.net import Net\n")
    assert code_of("elsewhere/net.py:Net").keys() == {*expected, "elsewhere/net.py"}


def test_what_only_a_forward_imports_counts_before_it_has_run():
    Path("late.py").write_text(
        "from torch import nn\n"
        "class Late(nn.Module):\n"
        "    def forward(self, x):\n"
        "        import helper, absent.inside, json\n"
        "        return helper.double(x)\n"
    )
    Path("helper.py").write_text("def double(x): return 2 * x\n")
    assert code_of("late.py:Late").keys() == {"late.py", "helper.py"}


@pytest.mark.parametrize("name", ["squeezenet1_1", "torch.nn:Flatten"])
def test_a_model_of_a_library_has_no_code_of_the_users(name):
    assert code_of(name) == {}


def test_a_file_that_is_called_like_a_module_of_python_is_the_users():
    Path("code.py").write_text("from torch.nn import Flatten\nimport json, os.path\n")
    assert code_of("code.py:Flatten").keys() == {"code.py"}
