"""Which calls an export leaves out, and why."""

from __future__ import annotations

import pytest

from hookcli.comparison.left_out import find_idle, list_left_out, may_be_idle
from hookcli.distance.judge import CallTensor


def test_each_call_that_an_export_lacks_has_a_kind_and_a_reason():
    types = {
        "conv": "Conv2d",
        "bn": "BatchNorm2d",
        "drop": "Dropout",
        "pool": "AvgPool2d",
        "fc": "Linear",
        "softmax": "Softmax",
    }
    left_out = [*list_left_out(types, common={"bn", "fc"})]
    assert [(each.call_id, each.kind, each.reason) for each in left_out] == [
        ("conv", "merged", "merged into bn"),
        ("drop", "idle", "left out, since it changes nothing"),
        ("pool", "part", "computed as a part of fc"),
        ("softmax", "part", "computed as a part of the model's output"),
    ]


def test_a_container_is_merged_where_its_last_layer_is():
    types = {"stem.0": "Conv2d", "stem": "Sequential", "bn": "BatchNorm2d"}
    left_out = [*list_left_out(types, common={"bn"})]
    assert [(each.call_id, each.reason) for each in left_out] == [
        ("stem.0", "merged into bn"),
        ("stem", "merged into bn"),
    ]


def test_the_export_says_why_it_left_out_a_call():
    types = {"flow": "Conv2d", "flow#1": "Conv2d"}
    reasons = {"flow": "it does not depend on the input"}
    (left_out,) = list_left_out(types, {"flow#1"}, reasons)
    assert left_out.reason == "left out, since it does not depend on the input"


def test_a_tensor_of_several_that_an_export_lacks_is_no_part_of_the_next_call():
    types = {"encoder[0]": "Encoder", "encoder[1]": "Encoder", "head": "Conv2d"}
    (left_out,) = list_left_out(types, {"encoder[1]", "head"})
    assert left_out.reason == "not among the tensors that B shows"


@pytest.mark.parametrize(
    ("name", "is_idle"),
    [("FeatureAlphaDropout", True), ("Dropout2d", True), ("DropPath", True), ("Drop_Path", True)]
    + [("IdentityBlock", False), ("DropoutConv", False)],
)
def test_a_layer_changes_nothing_if_its_name_ends_so(name, is_idle):
    assert may_be_idle(name) == is_idle


@pytest.mark.parametrize(
    ("kind", "is_idle"),
    [("Dropout2d", True), ("StochasticDepth", True), ("MCDropout", False), ("MyIdentity", False)],
)
def test_only_a_known_class_is_known_to_change_nothing(kind, is_idle):
    call = CallTensor("d", kind, (1, 4), "float32")
    assert (find_idle(call, None) is not None) == is_idle
