"""Lists of the models of each source, and completion of their names."""

from __future__ import annotations

import json

import pytest

from hookcli.cli.completion import complete_model
from hookcli.errors import RequestError
from hookcli.networks.catalog import list_catalog


def test_models_of_torchvision_are_listed_without_a_source():
    names = [entry.name for entry in list_catalog("resnet*")]
    assert names == ["resnet101", "resnet152", "resnet18", "resnet34", "resnet50"]
    assert [entry.name for entry in list_catalog("resnet*", "torchvision")] == names


def test_a_pattern_matches_names_with_and_without_the_prefix_of_the_source():
    pytest.importorskip("timm")
    (plain,) = list_catalog("resnet18", "timm")
    (prefixed,) = list_catalog("timm:resnet18", "timm")
    assert plain == prefixed
    assert plain.name == "timm:resnet18"
    assert "a1_in1k" in plain.weights


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("timm:vit*", "`hookcli.models(source='timm')`"),
        ("timm", "`hookcli.models(source='timm')`"),
        ("resne", "`hookcli.models('resne*')`"),
    ],
)
def test_a_word_that_lists_no_models_is_answered_with_one_that_does(pattern, hint):
    with pytest.raises(RequestError) as refused:
        list_catalog(pattern)
    assert refused.value.hint == hint


def test_names_of_a_source_are_completed_once_they_were_listed(run):
    pytest.importorskip("timm")
    assert complete_model("timm:resnet1") == []
    ended = run("models", "--source", "timm", "resnet18", "--format", "json")
    assert [model["name"] for model in json.loads(ended.out)["models"]] == ["timm:resnet18"]
    assert "timm:resnet152" in complete_model("timm:resnet1")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("--fetch",), 2, "no model is called '*'"),
        (("resnet18", "--fetch", "--source", "timm"), 2, "--fetch takes a whole name"),
        (("resnet18", "--source", "keras"), 2, "there is no source 'keras'"),
    ],
)
def test_what_cannot_be_listed_or_fetched_is_refused(run, words, code, error):
    ended = run("models", *words)
    assert ended.code == code
    assert ended.err.startswith(f"error: {error}")
