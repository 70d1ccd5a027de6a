"""``--target`` with a box, pixels or another image, and the mean of several Grad-CAMs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cosine_similarity, interpolate, relu

from hookcli.config import BackwardStyle, ImageRequest, ModelRequest, RunRequest
from hookcli.errors import NoBoxError
from hookcli.networks.processors import choose_task
from hookcli.networks.task import Aim
from hookcli.networks.tasks import Detection, Segmentation
from hookcli.outside.files import safe_name
from hookcli.plan.images import find_images
from hookcli.plan.prepared import prepare_model
from hookcli.render.draw.heatmap import draw_heat
from tests.verbs.test_gradients import document

NETS = """
import torch
from torch import nn


class Boxes(nn.Module):
    \"\"\"Finds a box in the upper left quarter, and a better one in the lower right.\"\"\"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        x = self.conv(x).relu().mean(1)
        scores = torch.stack([x[:, :8, :8].mean((1, 2)), 1 + x[:, 8:, 8:].mean((1, 2))], 1)
        boxes = torch.tensor([[0.0, 0, 8, 8], [8, 8, 16, 16]])
        return [{"boxes": boxes, "scores": s, "labels": torch.tensor([1, 2])} for s in scores / 4]


class Moved(Boxes):
    \"\"\"Lists the boxes in another order, the first better, if half its weights are 0.\"\"\"

    def forward(self, x):
        (found,) = super().forward(x)
        if (self.conv.weight == 0).float().mean() < 0.4:
            return [found]
        found["scores"] = found["scores"] + torch.tensor([1.0, 0.0])
        return [{name: value[[1, 0]] for name, value in found.items()}]


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 1)

    def forward(self, x):
        return {"out": self.head(self.conv(x).relu())}


class OneClass(Pixels):
    def forward(self, x):
        return {"out": super().forward(x)["out"] + torch.tensor([0.0, 0, 99])[:, None, None]}


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.deep = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, stride=2)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.deep(self.conv(x).relu()).mean((2, 3)))
"""
PLAIN = ("--grids", "none", "-o", "out")
LOCAL = ("--cam-method", "layercam")  # each place by its own gradient


@pytest.fixture
def nets():
    Path("nets.py").write_text(NETS)
    for name, seed in (("a", 0), ("b", 1)):
        np.save(f"{name}.npy", np.random.default_rng(seed).normal(size=(3, 16, 16)).astype("f4"))
    return runpy.run_path("nets.py")


def gradients(run, net, *words):
    ended = run("gradients", f"nets.py:{net}", "a.npy", *words, *PLAIN)
    assert ended.code == 0, ended.err
    return document(), ended


def pixels(name="a"):
    return torch.tensor(np.load(f"{name}.npy"))[None]


def norms(found):
    sides = [row for row in found["layers"] if row["call_id"].startswith("grad_output:conv")]
    return [row["norm"] for row in sides]


def gradient_of(model, score, layer="conv"):
    kept = []
    model.get_submodule(layer).register_forward_hook(
        lambda _module, _args, output: output.retain_grad() or kept.append(output)
    )
    score(model(pixels())).backward()
    return kept[0].detach(), kept[0].grad


def test_each_box_has_its_own_gradient_map_and_frame_the_best_first(run, nets):
    boxes = ("--target", "box:0", "--target", "box:1")
    found, ended = gradients(run, "Boxes", "--cam", "conv", *LOCAL, *boxes)
    image = found["images"][0]
    scores = [image["score"], *image["other_scores"]]
    assert [(each["kind"], each["target"]) for each in scores] == [
        ("score of box 0", 2),
        ("score of box 1", 1),
    ]
    assert [each["box"] for each in scores] == [[8, 8, 16, 16], [0, 0, 8, 8]]
    for norm, index in zip(norms(found), (1, 0), strict=True):
        _, gradient = gradient_of(nets["Boxes"](), lambda out, at=index: out[0]["scores"][at])
        assert norm == pytest.approx(float(gradient.norm()), rel=1e-5)
    heats = found["heats"]
    assert heats[0]["box"] == pytest.approx([0.5, 0.5, 1, 1], abs=0.01)
    assert heats[1]["box"] == pytest.approx([0, 0, 0.5, 0.5], abs=0.01)
    assert [[side > 0.5 for side in heat["peak"]] for heat in heats] == [[True] * 2, [False] * 2]
    assert "in box" in ended.out
    assert "its hottest place lies inside the box" in Path("out/report.html").read_text()
    first, second = (np.asarray(Image.open(f"out/{heat['file']}")) for heat in heats)
    assert (first != second).any()


def test_the_box_of_ones_own_detector_is_where_the_network_saw_it(run, nets):
    noise = np.random.default_rng(0).integers(0, 255, (60, 160, 3), "u1")
    Image.fromarray(noise).save("wide.png")
    size = ("--size", "16", "--resize", "16")
    words = ("--cam", "conv", "--target", "box:0", *size, *PLAIN)
    assert run("gradients", "nets.py:Boxes", "wide.png", *words).code == 0
    (heat,) = document()["heats"]
    assert heat["box"] == pytest.approx([0.5, 0.5, 1, 1], abs=0.02)
    box = document()["images"][0]["score"]["box"]  # the middle 60 pixels of 160 were seen
    assert box == pytest.approx([80, 30, 110, 60], abs=1.5)


def test_a_map_of_a_pruned_model_is_tested(run, nets):
    words = ("--cam", "deep", "--target", "1", "--prune", "conv=0.5")
    found, _ = gradients(run, "Pooled", *words)
    test = found["heats"][0]["test"]
    assert len(test["deletion"]) == 11
    assert test["randomised"] != test["deletion"]


def test_the_test_of_a_box_weighs_scores_by_the_overlap_with_the_first_box(run, nets):
    found, _ = gradients(run, "Boxes", "--cam", "conv", "--target", "box:0")
    test = found["heats"][0]["test"]
    assert test["deletion"][0] == pytest.approx(found["images"][0]["score"]["value"], rel=1e-5)


def test_after_pruning_the_same_box_is_scored_wherever_it_is_in_the_list(run, nets):
    found, _ = gradients(run, "Moved", "--target", "box:1", "--prune", "conv=0.5")
    image = found["images"][0]
    assert image["unedited_score"]["box"] == image["score"]["box"] == [0, 0, 8, 8]
    assert image["score"]["value"] > 1 > image["unedited_score"]["value"]


def test_the_score_of_pixels_is_the_mean_over_those_predicted_as_the_class(run, nets):
    found, _ = gradients(run, "Pixels", "--target", "pixels:1", "--cam", "conv")
    model = nets["Pixels"]()
    mask = model(pixels())["out"][0].argmax(0) == 1
    assert 0 < mask.sum() < mask.numel()
    value = float(model(pixels())["out"][0, 1][mask].mean().detach())
    score = found["images"][0]["score"]
    assert score == {
        "kind": "mean logit of the pixels",
        "value": pytest.approx(value, rel=1e-5),
        "target": 1,
        "category": "class 1",
    }
    _, gradient = gradient_of(model, lambda out: out["out"][0, 1][mask].mean())
    assert norms(found) == [pytest.approx(float(gradient.norm()), rel=1e-5)]
    chances = model(pixels())["out"].softmax(1)[0, 1][mask].mean().detach()
    assert found["heats"][0]["test"]["deletion"][0] == pytest.approx(float(chances), rel=1e-5)


def test_the_likeness_to_an_image_is_that_of_what_the_head_takes(run, nets):
    both = ("--target", "like:b.npy", "--target", "like:a.npy")
    found, _ = gradients(run, "Pooled", *both, "--cam", "auto")
    image, model = found["images"][0], nets["Pooled"]()
    kept = []
    model.fc.register_forward_pre_hook(lambda _module, args: kept.append(args[0][0]))
    model(pixels("b"))
    wanted = kept[0].detach()
    _, gradient = gradient_of(model, lambda _out: cosine_similarity(kept[-1], wanted, dim=0))
    assert norms(found)[0] == pytest.approx(float(gradient.norm()), rel=1e-4)
    assert image["score"]["kind"] == "similarity to b.npy"
    value = float(cosine_similarity(kept[-1], wanted, dim=0).detach())
    assert image["score"]["value"] == pytest.approx(value, rel=1e-5)
    assert image["other_scores"][0]["value"] == pytest.approx(1)
    assert found["heats"][0]["test"]["deletion"][0] == pytest.approx(value, rel=1e-5)
    assert [heat["call_id"] for heat in found["heats"]] == ["deep@like:b.npy", "deep@like:a.npy"]


def test_another_output_is_scored_by_the_box_of_the_class_that_overlaps_the_first_most():
    corners = torch.tensor([[0.0, 0, 10, 10], [50, 50, 60, 60], [5, 0, 15, 10], [0, 0, 10, 9]])
    other: Any = {"boxes": corners, "scores": torch.tensor([0.9, 0.8, 0.7, 0.5])}
    other["labels"] = torch.tensor([2, 1, 1, 1])
    first = Aim("box", 0, torch.tensor([0.0, 0, 10, 10, 1]))
    part = Detection().score_part([other], "logit", first)
    assert float(part.scored[0]) == pytest.approx(0.9 * 0.5)  # the first has another class
    assert part.scored[1] == 1
    other["labels"] = torch.tensor([2, 1, 2, 2])
    with pytest.raises(NoBoxError, match="no box of an image overlaps"):
        Detection().score_part([other], "logit", first)


def test_another_output_is_scored_at_the_pixels_of_the_first():
    one, other = torch.zeros(2, 1, 2, 2, 2)
    one[0, 1, 0, 0], other[0, 1, 0], other[0, 1, 1, 1] = 1, torch.tensor([0.25, 5]), 7
    part = Segmentation().score_part(one, "logit", Aim("pixels", 1))
    again = Segmentation().score_part(other, "logit", part.aim)
    assert (float(part.scored[0]), float(again.scored[0])) == (1, 0.25)


def test_the_boxes_of_transformers_are_shares_of_the_image():
    task = choose_task("DetrForObjectDetection")(lambda: None, None)
    assert task.place_box((0.1, 0.2, 0.5, 0.6), (200, 100)) == pytest.approx((20, 20, 100, 60))


def test_maps_of_more_than_eight_images_are_not_tested(run, nets):
    for number in range(9):
        np.save(f"many{number}.npy", np.load("a.npy"))
    words = ("nets.py:Pooled", *(f"many{n}.npy" for n in range(9)), "--cam", "deep", *PLAIN)
    ended = run("gradients", *words)
    assert (ended.code, "forward passes to test" in ended.err) == (0, False)
    assert [heat["test"] for heat in document()["heats"]] == [None] * 9


def test_a_photo_is_like_itself_even_if_its_features_are_small(run, nets):
    source = NETS.replace("mean((2, 3)))", "mean((2, 3)) * 1e-20)")
    Path("nets.py").write_text(source)
    found, _ = gradients(run, "Pooled", "--target", "like:a.npy")
    assert found["images"][0]["score"]["value"] == pytest.approx(1)


def test_texts_that_differ_in_signs_keep_names_of_their_own(nets):
    texts = ("a cat", "a cat.", "A cat!", "猫", "犬", "a cat 2")
    model = ModelRequest("nets.py:Pooled", device="cpu")
    request = RunRequest(model, ImageRequest(("a.npy",)))
    prepared: Any = prepare_model(request, find_images(request))
    names = [*prepared.scoring(BackwardStyle(texts=texts)).make(has_weights=False)]
    assert len({safe_name(name) for name in names}) == len(texts)


def test_a_text_leaves_out_the_predicted_class_unless_it_is_asked_for():
    assert BackwardStyle(texts=("a",)).aims == ("text:a",)
    assert BackwardStyle(targets=("predicted",), texts=("a",)).aims == ("predicted", "text:a")
    assert BackwardStyle().aims == ("predicted",)


def test_a_changed_image_of_like_is_seen_when_a_run_goes_on(run, nets):
    words = ("gradients", "nets.py:Pooled", "a.npy", "--target", "like:b.npy", *PLAIN)
    assert run(*words).code == 0
    assert "is complete" in run(*words, "--resume").err
    np.save("b.npy", np.load("a.npy"))
    ended = run(*words, "--resume")
    assert ended.code == 2
    assert "b.npy" in ended.err


def test_a_run_with_auto_can_go_on(run, nets):
    words = ("gradients", "nets.py:Pooled", "a.npy", "--cam", "auto", "--no-judge", *PLAIN)
    assert run(*words).code == 0
    assert document()["heats"][0]["call_id"] == "deep"
    ended = run(*words, "--resume")
    assert (ended.code, "is complete" in ended.err) == (0, True)


def test_the_mean_of_several_layers_is_one_map(run, nets, monkeypatch):
    drawn = []

    def keep(seen, values, heading, box=None):
        drawn.append(torch.tensor(values))
        return draw_heat(seen, values, heading, box)

    monkeypatch.setattr("hookcli.products.heats.draw_heat", keep)
    words = ("--cam", "conv,deep", "--cam-mean", "--target", "1")
    found, _ = gradients(run, "Pooled", *words)
    (heat,) = found["heats"]
    assert heat["call_id"] == "conv+deep"
    assert len(heat["test"]["randomised"]) == 11
    maps = []
    for layer in ("conv", "deep"):
        output, slope = gradient_of(nets["Pooled"](), lambda out: out[0, 1], layer)
        cam = relu((output * slope.mean((2, 3), keepdim=True)).sum(1, keepdim=True))
        maps.append(interpolate(cam / cam.max(), (16, 16), mode="bilinear"))
    torch.testing.assert_close(drawn[0], (maps[0] + maps[1])[0, 0] / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("net", "words", "message"),
    [
        ("Boxes", ("--target", "box:2"), "an image has no box 2: it has 2"),
        ("Boxes", ("--target", "box:first"), "--target box:first names no box"),
        ("Pooled", ("--target", "box:0"), "--target box:0: the model does not predict boxes"),
        ("Pooled", ("--target", "pixels:0"), "the model does not predict a class for each pixel"),
        ("Pixels", ("--target", "pixels:7"), "--target: there is no class 7"),
        ("OneClass", ("--target", "pixels:0"), "its classes: [2]; --target 0 averages"),
        ("Pooled", ("--target", "like:c.npy"), "no image can be used: 'c.npy' does not exist"),
        ("Pooled", ("--text", "a cat"), "--text: nets.py:Pooled takes no texts"),
        ("Boxes", ("--target", "box:0", "--score", "sum"), "takes no"),
        ("Pooled", ("--target", "predicted", "--score", "sum", "--text", "a"), "takes no --target"),
        ("Pooled", ("--target", "like:b.npy", "--score", "probability"), "a score of its own"),
        ("Pooled", ("--cam-mean",), "--cam-mean"),
    ],
)
def test_what_a_score_cannot_be_about_is_refused(run, nets, net, words, message):
    ended = run("gradients", f"nets.py:{net}", "a.npy", *words, *PLAIN)
    assert ended.code in (1, 2, 3)
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert not Path("out/report.json").exists()


def test_an_ablation_scores_classes_alone(run, nets):
    ended = run("ablate", "nets.py:Boxes", "a.npy", "--layers", "conv", "--target", "box:0")
    assert ended.code == 2
    assert "error: --target box:0: an ablation scores a class" in ended.err


def test_the_plan_counts_the_passes_that_test_maps(run, nets):
    words = ("--cam", "conv,deep", "--target", "0", "--target", "1", "--dry-run")
    ended = run("gradients", "nets.py:Pooled", "a.npy", *words, *PLAIN)
    assert "764 forward passes to test Grad-CAMs" in ended.err
    ended = run("gradients", "nets.py:Pooled", "a.npy", *words, "--no-judge", *PLAIN)
    assert "to test" not in ended.err
