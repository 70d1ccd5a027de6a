"""Which calls an export leaves out, and why."""

from __future__ import annotations

from hookcli.compare.left_out import list_left_out


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
