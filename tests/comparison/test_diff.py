"""``hookcli diff``: distances computed by hand, the pairing of calls, and the verdict."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hookcli.comparison.compared_run import RunCall, load_compared_run
from hookcli.comparison.diff import diff_runs, list_changed, pair_calls, pair_ids
from hookcli.distance.comparison import ChangedFact, LeftOut
from hookcli.distance.judge import CallPair, CallTensor, Judge
from hookcli.distance.metrics import Size, measure_arrays, measure_figures, measure_sketches
from hookcli.distance.tolerance import Tolerance, matches
from hookcli.distance.verdict import first_text, list_notes
from hookcli.errors import RequestError
from hookcli.records.statistics import TotalStats
from tests.toy_runs import ToyRun, array, run_of

NAN, INF = math.nan, math.inf
ROOT = math.sqrt(0.5)


def far(a, b, kind="f4"):
    return measure_arrays(array(a, kind), array(b, kind))


def seen(call_id="conv", shape=(1, 2), dtype="float32", reason=""):
    return CallTensor(call_id, "Conv2d", shape, dtype, reason)


def judged(*pairs, tolerance=None, dtypes=("float32",)):
    judge = Judge(tolerance or Tolerance(), dtypes)
    for pair in pairs:
        judge.add(pair)
    return judge.rows()


def pair_of(call_id, a, b, image="cat"):
    one, two = array(a), array(b)
    return CallPair(
        image, seen(call_id, one.shape), seen(call_id, two.shape), measure_arrays(one, two)
    )


def differences(a, b, tolerance=None, match=None, **kept):
    """Return the comparison of two toy runs."""
    for name, toy in (("a", a), ("b", b)):
        replace(toy, **kept).write(name)
    return diff_runs(
        load_compared_run("a"), load_compared_run("b"), tolerance or Tolerance(), match
    )


def test_the_distances_of_two_small_tensors_by_hand():
    distance = far([3, 4], [3, 4.5])
    assert distance.rel_l2 == pytest.approx(0.1)  # 0.5 over 5
    assert distance.difference == Size(0.5 * ROOT, 0.5, 0.25, 2)
    assert distance.a == Size(pytest.approx(5 * ROOT), 4, 3.5, 2)  # type: ignore[arg-type]
    assert distance.cosine == pytest.approx(27 / (5 * math.sqrt(29.25)))
    assert (distance.misplaced, distance.nans, distance.source) == (0, 0, "tensors")


@pytest.mark.parametrize(
    ("a", "b", "rel_l2", "cosine"),
    [
        ([0, 0], [0, 0], 0, None),
        ([0, 0], [3, 4], INF, None),
        ([3, 4], [0, 0], 1, None),
        ([3, 4], [-3, -4], 2, -1),
        ([3, 4], [3, 4], 0, 1),
    ],
)
def test_the_ends_of_the_distance_and_of_the_cosine(a, b, rel_l2, cosine):
    distance = far(a, b)
    assert (distance.rel_l2, distance.cosine) == (rel_l2, cosine)


@pytest.mark.parametrize(
    ("a", "b", "misplaced", "nans"),
    [
        ([NAN, 4], [NAN, 4], 0, 1),
        ([NAN, 4], [3, 4], 1, 0),
        ([INF, 4], [INF, 4], 0, 0),
        ([INF, 4], [-INF, 4], 1, 0),
        ([INF, 4], [4, INF], 2, 0),
        ([NAN, NAN], [INF, NAN], 1, 1),
    ],
)
def test_values_that_are_not_finite_are_counted_and_left_out(a, b, misplaced, nans):
    distance = far(a, b)
    assert (distance.misplaced, distance.nans) == (misplaced, nans)
    assert distance.rel_l2 == 0


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_squares_neither_vanish_nor_overflow(factor):
    distance = far(np.array([[3 * factor, 4 * factor]]), np.array([[3 * factor, 4.5 * factor]]))
    assert distance.rel_l2 == pytest.approx(0.1)
    assert distance.cosine == pytest.approx(27 / (5 * math.sqrt(29.25)))


@pytest.mark.parametrize(
    ("a", "b", "kind", "largest"),
    [
        ([60000, 0], [-60000, 0], "f2", 2 * float(np.float16(60000))),
        ([3, 4], [4, 3], "u1", 1),
        ([True, False], [False, False], "?", 1),
        ([2**60], [2**60 + 1], "i8", 1),  # which float64 would round to one value
        ([3 + 4j, 0], [3j + 4 + 0.5, 0], "c8", math.hypot(1.5, 1)),
    ],
)
def test_numbers_of_all_kinds_are_subtracted_as_numbers(a, b, kind, largest):
    assert far(a, b, kind).difference.largest == pytest.approx(largest)


def test_the_angle_of_complex_numbers_is_that_of_pairs():
    distance = far([3 + 4j, 0], [3j + 4 + 0.5, 0], "c8")
    assert (distance.a.largest, distance.difference.values) == (5, 2)
    assert distance.cosine == pytest.approx((3 * 4.5 + 4 * 3) / (5 * math.hypot(4.5, 3)))


def sketched(a, b, figures):
    """Of sketches whose first buckets hold these values."""
    one, two = (np.array([*values, *[0] * (67 - len(values))], "f4") for values in (a, b))
    return measure_sketches((one, two), figures)


PAIR = TotalStats(mean=3.5, std=0.5, min=3.0, max=4.0, numel=2)  # 3 and 4


def test_the_distance_of_two_sketches_by_hand():
    distance = sketched([3, -4], [3, -4.5], (PAIR, replace(PAIR, mean=3.75, std=0.75, max=4.5)))
    assert distance.rel_l2 == pytest.approx(0.1)
    assert distance.cosine == pytest.approx(27 / (5 * math.sqrt(29.25)))
    assert (distance.difference.largest, distance.source) == (None, "sketches")


def test_figures_that_prove_a_larger_distance_than_the_sketches_are_believed():
    """All of the difference may fall into one bucket with opposite signs."""
    one = replace(PAIR, mean=0.0, std=1.0, numel=4)
    assert sketched([1], [1], (one, replace(one, max=10.0))).rel_l2 == 3  # 10 - 4 over the norm, 2
    assert sketched([1], [1], (one, replace(one, mean=0.3, std=1.4))).rel_l2 == pytest.approx(
        0.5, 1e-5
    )


def test_sketches_tell_nan_and_inf_from_how_many_there_are():
    one, two = (
        replace(PAIR, nan_count=nans, inf_count=infs, numel=4) for nans, infs in ((2, 1), (1, 0))
    )
    distance = sketched([1], [1], (one, two))
    assert (distance.misplaced, distance.nans, distance.difference.values) == (2, 1, 1)


@pytest.mark.parametrize("seed", range(5))
def test_figures_never_prove_more_than_there_is(seed):
    rng = np.random.default_rng(seed)
    one = np.maximum(rng.standard_normal((1, 500)), 0)
    two = one + rng.standard_normal((1, 500)) * 10.0 ** rng.integers(-4, 1)
    known = (
        TotalStats(mean=x.mean(), std=x.std(), min=x.min(), max=x.max(), numel=500)
        for x in (one, two)
    )
    proven, true = measure_figures(*known), measure_arrays(one, two)
    assert 0 < proven.difference.rms <= true.difference.rms
    assert 0 < proven.difference.largest <= true.difference.largest


def test_sums_of_the_same_values_in_another_order_prove_nothing():
    """As float32 adds them up in another memory format."""
    values = np.random.default_rng(0).standard_normal((64, 56, 56)).astype("f4")
    sums = [float(each.sum(dtype="f4")) for each in (values, values.T, np.sort(values.ravel()))]
    means = [total / values.size for total in sums]
    assert len(set(means)) > 1
    figures = [replace(PAIR, mean=mean, std=1.0, min=-4.0, numel=values.size) for mean in means]
    assert {measure_figures(figures[0], other).difference.rms for other in figures[1:]} == {0}


@pytest.mark.parametrize(
    ("dtypes", "sketched", "rtol"),
    [
        (("float32",), False, 1e-5),
        (("bfloat16", "float16"), False, 5e-2),
        (("float64",), False, 1e-12),
        (("float64",), True, 1e-6),
        (("int64",), True, 0.0),
        (("uint8", "float32"), True, 1e-5),
    ],
)
def test_the_default_is_that_of_the_coarsest_dtype(dtypes, sketched, rtol):
    assert Tolerance().rtol_of("conv", dtypes, sketched=sketched) == rtol
    cosine = Tolerance("cosine").rtol_of("conv", dtypes, sketched=sketched)
    assert cosine == pytest.approx(1 - math.cos(rtol), rel=1e-3, abs=1e-16)


def test_the_last_glob_that_matches_wins_over_rtol():
    tolerance = Tolerance(rtol=1e-3, layers=(("layer*", 0.1), ("layer4.*", 0.2), ("conv", 0.3)))
    wanted = {"layer4.0": 0.2, "layer1.0": 0.1, "conv": 0.3, "fc": 1e-3}
    assert {name: tolerance.rtol_of(name, ["float32"], sketched=True) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("glob", "call_id", "holds"),
    [
        ("conv", "conv#1", True),
        ("conv", "grad_output:conv", True),
        ("conv#1", "conv", False),
        ("attn", "attn[1]", True),
        ("attn[1]", "attn1", False),
        ("input:*", "input:conv", True),
        ("input:*", "conv", False),
        ("Conv", "conv", False),
        ("block.?", "block.10", False),
    ],
)
def test_a_glob_names_a_call_with_and_without_its_side_index_and_key(glob, call_id, holds):
    assert matches(glob, call_id) is holds


@pytest.mark.parametrize(
    ("metric", "rtol", "atol", "excess"),
    [
        ("rel-l2", 0.05, 0, 2),  # 0.5 of 0.05 * 5
        ("rel-l2", 0.05, 0.5 * ROOT, 1 / 1.5),
        ("max-abs", 0.0625, 0.25, 1),
        ("mean-abs", 0.1, 0, 0.25 / 0.35),
        ("cosine", 1 - 27 / (5 * math.sqrt(29.25)), 0, 1),
        ("rel-l2", 0, 0, INF),
    ],
)
def test_the_excess_over_what_is_tolerated_by_hand(metric, rtol, atol, excess):
    assert far([3, 4], [3, 4.5]).excess(metric, rtol, atol) == pytest.approx(excess)


def test_a_distance_of_exactly_the_tolerance_holds():
    (row,) = judged(pair_of("conv", [4], [5]), tolerance=Tolerance(rtol=0.25))
    assert row.holds
    (row,) = judged(pair_of("conv", [4], [5]), tolerance=Tolerance(rtol=0.2499))
    assert not row.holds


@pytest.mark.parametrize(
    ("a", "b", "holds"), [([0, 0], [0, 0], True), ([0, 0], [1, 0], False), ([1, 0], [0, 0], False)]
)
def test_two_tensors_of_zeros_have_the_same_direction_and_one_has_none(a, b, holds):
    (row,) = judged(pair_of("conv", a, b), tolerance=Tolerance("cosine", 0.5))
    assert (row.holds, row.cosine) == (holds, None)
    assert row.reason == ("" if holds else f"{'A' if a == [0, 0] else 'B'} is zero everywhere")


def test_the_worst_row_comes_first_and_rows_know_the_order_of_calls():
    rows = judged(pair_of("one", [1], [1.1]), pair_of("two", [1], [1]), pair_of("three", [1], [3]))
    assert [(row.call_id, row.rank, row.order, row.holds) for row in rows] == [
        ("three", 1, 3, False),
        ("one", 2, 1, False),
        ("two", 3, 2, True),
    ]


def test_the_worst_of_several_images_is_reported_and_all_are_counted():
    for last, failed in ((2, 2), (1, 1)):
        values = {"ant": 1, "bee": 3, "cat": last}
        (row,) = judged(*(pair_of("conv", [1], [values[image]], image) for image in values))
        assert (row.image, row.rel_l2, row.images, row.failed_images) == ("bee", 2.0, 3, failed)
        assert not row.holds


def test_a_call_that_only_a_later_image_has_is_after_the_one_before_it():
    pairs = [pair_of(call, [1], [1], "ant") for call in ("first", "last")]
    pairs += [pair_of(call, [1], [1], "bee") for call in ("zeroth", "first", "middle", "last")]
    rows = sorted(judged(*pairs), key=lambda row: row.order)
    assert [row.call_id for row in rows] == ["zeroth", "first", "middle", "last"]


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (seen(), None, "only in A"),
        (None, seen(), "only in B"),
        (seen(shape=(1, 2)), seen(shape=(1, 3)), "shapes differ: 1x2 and 1x3"),
        (seen(reason="it was computed again"), seen(), "no gradient in A: it was computed again"),
        (seen(), seen(reason="it was computed again"), "no gradient in B: it was computed again"),
    ],
)
def test_what_has_no_distance_differs_and_says_why(a, b, reason):
    (row,) = judged(CallPair("cat", a, b))
    assert (row.holds, row.reason, row.rel_l2, row.source) == (False, reason, None, "")
    assert (row.dtype, row.other_dtype) == (a.dtype if a else "", b.dtype if b else "")


def test_calls_are_paired_by_id_in_the_order_of_a_and_then_of_b():
    pairs = list(pair_ids(["a", "b", "c", "d"], ["x", "a", "c", "y", "z", "b"]))
    assert pairs == [("", "x"), ("a", "a"), ("b", "b"), ("c", "c"), ("", "y"), ("", "z"), ("d", "")]


def calls_of(*described):
    return [
        RunCall(CallTensor(f"{side}{index}", kind, (1, width), "float32"), PAIR)
        for index, (side, kind, width) in enumerate(described)
    ]


CONV, NORM, ACT, FC = ("", "Conv2d", 8), ("", "BatchNorm2d", 8), ("", "ReLU", 8), ("", "Linear", 2)
SMALL = ("", "Conv2d", 3)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # a layer that was put in, and layers that are missing
        ([CONV, CONV, FC], [CONV, SMALL, CONV, FC], ["0 0", "- 1", "1 2", "2 3"]),
        ([CONV, NORM, ACT, CONV], [CONV, ACT, CONV], ["0 0", "1 -", "2 1", "3 2"]),
        # other shapes between equal ones
        ([CONV, FC, ACT], [CONV, SMALL, NORM, ACT], ["0 0", "1 1", "- 2", "2 3"]),
        # an input is no counterpart of an output of its shape
        ([CONV, CONV], [("input:", *CONV[1:]), CONV, CONV], ["- input:0", "0 1", "1 2"]),
    ],
)
def test_calls_are_paired_by_order_of_kinds_and_shapes(a, b, expected):
    pairs = pair_calls(calls_of(*a), calls_of(*b), "order")
    found = [[each.tensor.call_id if each else "-" for each in pair] for pair in pairs]
    assert [" ".join(pair) for pair in found] == expected


def test_images_whose_names_were_swapped_belong_together_by_content():
    calls = {"conv": array([3, 4])}, {"conv": array([1, 2])}
    a = ToyRun({"one": calls[0], "two": calls[1]}, hashes={"one": "x", "two": "y"})
    b = ToyRun({"one": calls[1], "two": calls[0]}, hashes={"one": "y", "two": "x"})
    assert differences(a, b).equal


@pytest.mark.parametrize("match", ["id", "order"])
def test_a_call_that_changes_nothing_may_be_in_one_run_alone(match):
    run_of(conv=[3, 4], fc=[2]).write("a")
    run_of(conv=[3, 4], drop=[3, 4], fc=[2]).write("b")
    a, b = load_compared_run("a"), load_compared_run("b")
    conv, drop, fc = b.calls["cat"]
    drop = replace(drop, tensor=replace(drop.tensor, module_type="Dropout"))
    comparison = diff_runs(a, replace(b, calls={"cat": [conv, drop, fc]}), Tolerance(), match)
    assert [row.call_id for row in comparison.rows] == ["conv", "fc"]
    reason = "only in B, and changes nothing in evaluation mode"
    assert comparison.left_out == (LeftOut("drop", "idle", reason),)
    assert comparison.exit_code == 0


def test_an_image_that_one_run_lacks_is_a_difference():
    a = run_of({"ant": {"conv": array([1])}, "bee": {"conv": array([1])}})
    b = run_of({"bee": {"conv": array([1])}, "cat": {"conv": array([1])}})
    comparison = differences(a, b)
    assert (comparison.only_in_a, comparison.only_in_b) == (("ant",), ("cat",))
    assert (comparison.equal, comparison.exit_code, comparison.first) == (False, 7, None)
    text = "2 images in one run only; in the other 1 image nothing differs"
    assert first_text(comparison) == text
    assert next(list_notes(comparison)) == "images only in A: ant"


@pytest.mark.parametrize("kept", ["tensors", "sketches", "both"])
def test_tensors_and_sketches_find_the_same_distance(kept):
    (row,) = differences(run_of(conv=[3, 4]), run_of(conv=[3, 4.5]), kept=kept).rows
    assert row.rel_l2 == pytest.approx(0.1, rel=1e-6)
    assert row.source == ("sketches" if kept == "sketches" else "tensors")
    assert row.max_abs == (None if kept == "sketches" else 0.5)


def test_a_run_with_tensors_is_compared_with_a_golden_file():
    run_of(conv=[3, 4]).write("a")
    replace(run_of(conv=[3, 4.5]), kept="sketches").write_golden("b.json")
    for one, two in (("a", "b.json"), ("b.json", "a")):
        comparison = diff_runs(load_compared_run(one), load_compared_run(two), Tolerance())
        (row,) = comparison.rows
        assert row.source == "sketches"
        assert "rel L2 and cosine are estimates from sketches, " in "\n".join(
            list_notes(comparison)
        )
        assert row.rel_l2 == pytest.approx(0.1 if one == "a" else 0.5 / math.sqrt(29.25), rel=1e-6)


@pytest.mark.parametrize(("last", "holds"), [(4.015625, True), (4.125, False)])
def test_tensors_saved_as_float16_are_compared_at_the_tolerance_of_float16(last, holds):
    """0.016 and 0.125 in 5: halves that are exact."""
    half = {"conv": np.array([[3, last]], "f2")}
    b = replace(run_of(conv=[3, last]), command=("--tensor-dtype", "float16"), saved=half)
    (row,) = differences(run_of(conv=[3, 4]), b).rows
    assert (row.tolerance, row.holds) == (5e-3, holds)
    assert row.rel_l2 == (last - 4) / 5
    assert row.source == "tensors --tensor-dtype float16"


def test_pooled_tensors_are_compared_with_tensors_pooled_in_the_same_way():
    maps = {"cat": {"conv": np.ones((1, 2, 3, 3), "f4")}}
    toys = [
        ToyRun(maps, saved={"conv": array(mean)}, command=("--pool", "mean"))
        for mean in ([3, 4], [3, 4.5])
    ]
    (row,) = differences(*toys).rows
    assert (row.source, row.shape) == ("tensors --pool mean", (1, 2, 3, 3))
    assert row.rel_l2 == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ("tensors", "NaN in both, in 1 place"),
        ("sketches", "NaN or Inf in both, 1 of them, at places that sketches do not record"),
        ("nothing", "NaN or Inf in both, 1 of them, at places that figures do not record"),
    ],
)
def test_nan_in_both_is_a_difference_unless_it_is_asked_to_be_none(kept, reason):
    toy = replace(run_of(conv=[NAN, 4]), kept=kept)
    assert differences(toy, toy).rows[0].reason == f"{reason} (`equal_nan` accepts this)"
    allowed = diff_runs(load_compared_run("a"), load_compared_run("b"), Tolerance(equal_nan=True))
    assert (allowed.equal, allowed.rows[0].rel_l2) == (True, 0)


@pytest.mark.parametrize("kept", ["tensors", "nothing"])
def test_nan_everywhere_in_both_is_never_equal(kept):
    toy = replace(run_of(conv=[NAN, NAN]), kept=kept)
    assert not differences(toy, toy).equal
    with pytest.raises(RequestError) as caught:
        diff_runs(load_compared_run("a"), load_compared_run("b"), Tolerance(equal_nan=True))
    assert caught.value.message == "nothing could be compared: conv: no value is finite in both"
    assert "`fail_on=('nan', 'inf')`" in caught.value.hint


def test_a_call_without_finite_values_does_not_hold_beside_others_that_do():
    toy = run_of(bn=[3, 4], conv=[INF, INF])
    (row,) = differences(toy, toy).failed
    reason = "no value is finite in both (`equal_nan` accepts this)"
    assert (row.call_id, row.reason) == ("conv", reason)


def test_sketches_of_the_whole_go_before_tensors_that_are_only_a_part_of_it():
    """The pooled means are the same; the sketches know that the maps are not."""
    maps = [np.array([[[1, 3]]], "f4"), np.array([[[3, 1]]], "f4")]
    a, b = (
        ToyRun(
            {"cat": {"conv": each}},
            kept="both",
            saved={"conv": array([2])},
            command=("--pool", "mean"),
        )
        for each in maps
    )
    (row,) = differences(a, b).rows
    assert (row.source, row.holds) == ("sketches", False)


@pytest.mark.parametrize("dtype", ["i8", "?"])
def test_whole_numbers_must_be_equal_whatever_the_model_computes_in(dtype):
    ones = np.ones((1, 10_000), dtype)
    other = ones.copy()
    other[0, 7] = 0
    a, b = (ToyRun({"cat": {"conv": each}}, model={"dtype": "bfloat16"}) for each in (ones, other))
    (row,) = differences(a, b).rows
    assert (row.tolerance, row.holds) == (0, False)


def test_what_a_run_depends_on_and_is_not_the_same_is_listed_in_order():
    toy = run_of(conv=[1])
    a = toy.golden()
    b = toy.golden() | {"versions": {"hookcli": "0.1.0", "torch": "2.16.0", "threads": "8"}}
    b["model"] = a["model"] | {"device": "cuda:0"}
    b["command"] = [*a["command"], "--edit", "conv:zero"]
    changed = [(each.name, each.a, each.b) for each in list_changed(a, b)]
    assert changed == [
        ("model device", "cpu", "cuda:0"),
        ("torch", "2.15.0", "2.16.0"),
        ("threads", "2", "8"),
        ("--edit", None, "conv:zero"),
    ]
    assert list(list_changed(a, a)) == []


@pytest.fixture
def runs():
    """A and B differ in conv by a tenth, and then in fc."""
    one = {"bn": array([1]), "conv": array([3, 4]), "fc": array([2])}
    two = {"bn": array([1]), "conv": array([3, 4.5]), "fc": array([8])}
    ToyRun({"cat": one}).write("a")
    ToyRun({"cat": two}, model={"weights": "other.pth"}, command=("--edit", "conv:zero")).write("b")


def test_the_table_opens_with_the_verdict_and_closes_with_what_changed(run, runs):
    ended = run("diff", "a", "b")
    assert ended.code == 7
    assert ended.out == (
        "conv differs first: relative L2 0.1, tolerance 1e-05; 2 of 3 calls differ\n"
        " #   call   type     shape   rel L2   max abs   mean abs   median channel   worst channel"
        "      cosine   tolerance   holds   mark\n"
        f" {'─' * 128}\n"
        " 1   bn     Conv2d   1x1          0         0          0                0               0"
        "           1       1e-05   yes\n"
        " 2   conv   Conv2d   1x2        0.1       0.5       0.25           0.0625           0.125"
        "   0.9984604       1e-05   no      first\n"
        " 3   fc     Conv2d   1x1          3         6          6                3               3"
        "           1       1e-05   no      worst\n"
        "A (the reference): a; B: b\n"
        "changed: model weights: random (seed 0), now other.pth\n"
        "changed: --edit: none, now conv:zero\n"
    )
    assert ended.err == ""


def test_equal_runs_say_how_far_the_farthest_is(run, runs):
    ended = run("diff", "a", "a", "--top", "1")
    first, *_, last = ended.out.splitlines()
    held = "no difference: 3 calls of 1 image hold; the farthest is bn: relative L2 0, "
    assert (ended.code, first) == (0, f"{held}tolerance 1e-05")
    assert "the worst 1 of 3 calls; all of them: --format csv\n" in ended.out
    assert last.startswith("nothing else changed: model name, weights, device, threads and ")


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (
            ["--metric", "max-abs"],
            "conv differs first: largest difference 0.5, tolerance 4e-05; 2 of 3 calls differ",
        ),
        (
            ["--metric", "cosine"],
            "conv differs first: 1 - cosine 0.00154, tolerance 5e-11; 1 of 3 calls differs",
        ),
        (
            ["--rtol", "0", "--atol", "6"],
            (
                "nothing beyond the tolerance: 3 calls of 1 image hold; "
                "the farthest is fc: relative L2 3, tolerance 3"
            ),
        ),
    ],
)
def test_the_verdict_names_the_metric_that_decides(run, runs, words, verdict):
    assert run("diff", "a", "b", *words).out.splitlines()[0] == verdict


def test_the_verdict_names_both_calls_where_they_have_other_names(run):
    run_of(conv=[3, 4]).write("a")
    replace(run_of(stem=[3, 4.5]), model={"name": "other"}).write("b")
    ended = run("diff", "a", "b", "--match", "order")
    assert ended.out.splitlines()[0] == (
        "conv (in B stem) differs first: relative L2 0.1, tolerance 1e-05; 1 of 1 call differs"
    )
    assert " 1   conv / stem " in ended.out
    assert "changed: model name: toy, now other\n" in ended.out


@pytest.mark.parametrize("kept", ["nothing", "sketches"])
def test_the_figures_of_runs_without_tensors_and_sketches_are_compared(run, kept):
    """The mean and the standard deviation of 3 and 4 change by 1/4 each."""
    replace(run_of(bn=[1], conv=[3, 4]), kept=kept).write("a")
    replace(run_of(bn=[1], conv=[3, 4.5]), kept="nothing").write("b")
    ended = run("diff", "a", "b")
    assert ended.code == 7
    assert ended.out.startswith("conv differs first: relative L2 at least 0.1, tolerance 1e-05; ")
    assert "\nonly figures were compared (mean, std, min, max, NaN, Inf): rel L2 and " in ended.out
    assert run("diff", "b", "b").out.startswith("no difference in the figures: 2 calls of 1 ")


def test_the_diff_names_calls_of_which_only_figures_were_compared(run):
    run_of(bn=[1], conv=[3, 4]).write("a")
    document = json.loads(Path("a/tensors/index.json").read_bytes())
    document["calls"].pop("conv")
    Path("a/tensors/index.json").write_text(json.dumps(document))
    ended = run("diff", "a", "a")
    assert "only figures of 1 of 2 calls were compared (mean, " in ended.out
    assert ended.out.startswith(
        "no difference: 2 calls of 1 image hold (1 of them in the figures alone); "
    )


@pytest.fixture
def two_images():
    """conv differs by a tenth in the dog and not in the cat; bn is the same in both."""
    plain = {"bn": array([1]), "conv": array([3, 4])}
    ToyRun({"cat": plain, "dog": plain}).write("a")
    ToyRun({"cat": plain, "dog": plain | {"conv": array([3, 4.5])}}).write("b")


ROWS_OF_TWO = [
    ("conv", "cat", True, 0.0, 2, 1),
    ("conv", "dog", False, 0.1, 2, 1),
    ("bn", "cat", True, 0.0, 2, 0),
    ("bn", "dog", True, 0.0, 2, 0),
]
SHOWN_OF_TWO = ("call_id", "image", "holds", "rel_l2", "images", "failed_images")


def test_csv_and_jsonl_have_a_row_for_every_image_of_every_call(run, two_images):
    worst = ("diff", "a", "b", "--sort", "worst", "--format")
    rows = list(csv.DictReader(io.StringIO(run(*worst, "csv").out)))
    texts = [tuple(map(str, row)) for row in ROWS_OF_TWO]
    assert [tuple(row[name] for name in SHOWN_OF_TWO) for row in rows] == texts
    lines = run(*worst, "jsonl").out.splitlines()
    found = [tuple(json.loads(line)[name] for name in SHOWN_OF_TWO) for line in lines]
    assert found == ROWS_OF_TWO


def test_the_table_has_the_worst_image_and_says_where_all_are(run, two_images):
    lines = run("diff", "a", "b").out.splitlines()
    assert " tolerance 1e-05 (worst in dog); 1 of 2 calls differs" in lines[0]
    assert [line.split()[1] for line in lines[3:5]] == ["bn", "conv"]
    assert lines[5] == "the figures are from each call's worst image; all of them: --format csv"
    assert run("diff", "a", "b", "--top", "1").out.splitlines()[4] == (
        "the worst 1 of 2 calls, and the figures are from each call's worst image; "
        "all of them: --format csv"
    )


def test_a_hostile_call_id_is_shown_escaped(run):
    name = "co\x1b[31mnv|<b>"
    run_of({"cat": {name: array([1])}}).write("a")
    run_of({"cat": {name: array([2])}}).write("b")
    assert run("diff", "a", "b").out.startswith("co\\x1b[31mnv|<b> differs first: ")
    assert run("diff", "a", "b", "--format", "md").out.startswith(
        "**co\\\\x1b\\[31mnv\\|\\<b\\> differs first: "
    )


def test_runs_are_compared_and_have_golden_files_without_torch():
    run_of(conv=[3, 4]).write("a")
    replace(run_of(conv=[3, 4.5]), kept="sketches").write_golden("b.json")
    run_of(conv=[3, 5]).write("c")
    code = (
        "import sys; from hookcli.__main__ import _run\n"
        "words = 'diff a a', 'diff a b.json', 'diff a c --pictures p', 'golden a -o g.json'\n"
        "for each in words:\n"
        "    sys.argv = ['hookcli', *each.split()]\n"
        "    print('code', _run(), {'torch', 'matplotlib'} & {*sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if line.startswith("code")]
    assert said == ["code 0 set()", "code 7 set()", "code 7 set()", "code 0 set()"]


def test_layers_that_are_of_another_type_now_are_named():
    run_of(conv=[3, 4], act=[1], last=[1]).write("a")
    a = load_compared_run("a")
    conv, *others = a.calls["cat"]
    named = [replace(each, tensor=replace(each.tensor, module_type="GELU")) for each in others]
    changed = diff_runs(a, replace(a, calls={"cat": [conv, *named]}), Tolerance()).changed
    assert changed == (ChangedFact("type of 'act' and 1 more", "Conv2d", "GELU"),)
