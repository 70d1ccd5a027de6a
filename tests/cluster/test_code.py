"""The user's own code on nodes that lack it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hookcli.cluster.code import copy_code, find_code
from hookcli.config import BackwardStyle, GradientsConfig, ImageRequest, ModelRequest, RunRequest


def asked(model, score="logit"):
    request = RunRequest(ModelRequest(model), ImageRequest(("photos",)))
    return GradientsConfig(request, backward=BackwardStyle(score=score))


@pytest.fixture
def sent():
    """A working directory of workers, with the code of two folders and its imports."""
    for name in ("nets/net.py", "nets/parts.py", "score.py", "nets/weights.bin"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(f"# {name}")
    assert copy_code(asked("nets/net.py:make", "score.py:total"), Path("sent"))
    return Path("sent")


def test_code_that_is_missing_is_found_in_what_was_sent(sent):
    Path("nets/net.py").unlink()
    Path("score.py").unlink()
    config = find_code(asked("nets/net.py:make", "score.py:total"), sent)
    file, _, factory = config.run.model.name.rpartition(":")
    assert (Path(file).read_text(), factory) == ("# nets/net.py", "make")
    assert (Path(file).parent / "parts.py").read_text() == "# nets/parts.py"
    assert not (Path(file).parent / "weights.bin").exists()
    file, _, function = config.backward.score.rpartition(":")
    assert (Path(file).read_text(), function) == ("# score.py", "total")


def test_code_that_is_there_is_used_where_it_is(sent):
    config = asked("nets/net.py:make", "score.py:total")
    assert find_code(config, sent) == config


@pytest.mark.parametrize("model", ["resnet18", "timm:resnet18", "package.module:make"])
def test_other_models_send_nothing(model):
    config = asked(model)
    assert not copy_code(config, Path("sent"))
    assert find_code(config, Path("sent")) == config
