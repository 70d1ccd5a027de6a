"""From names of Python in messages to the words of the command line."""

from __future__ import annotations

import pytest

from hookcli.cli.output.wording import to_words


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("`seed` must be at least 0", "--seed must be at least 0"),
        ("`other.run.model.size`", "--size"),  # of the second variant of a comparison
        ("another `out`", "another -o"),
        ("`resume=True`", "--resume"),
        ("`weights='my net.pth'`", "--weights 'my net.pth'"),
        ("`layers=('conv', 'fc')`", "--layers conv --layers fc"),
        ("`fail_on=('nan', 'inf')`", "--fail-on nan,inf"),
        ("`model.dtype`, `save.dtype`", "--dtype, --tensor-dtype"),
        ("`tensors.save` and `tensors.attention`", "--save tensors and --save attention"),
        ("`attention=AttentionRequest(('all',))`", "--attention all"),
        ("`hookcli.layers(MODEL, ops=True)`", "hookcli layers MODEL --ops"),
        ("`hookcli.diff(match='order')`", "hookcli diff --match order"),
    ],
)
def test_a_name_of_python_becomes_words_of_the_command_line(python, words):
    assert to_words(python) == words


@pytest.mark.parametrize(
    "text", ["no model is called '`seed`'", "expected `int`", "a ` b", "--seed"]
)
def test_backticks_that_name_no_field_are_left_alone(text):
    assert to_words(text) == text
