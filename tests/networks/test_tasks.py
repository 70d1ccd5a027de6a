"""Every task of torchvision: the network's input and arguments, and how its output is read."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.ao.nn import quantized
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F  # noqa: N812

import hookcli
from hookcli.config import ModelRequest
from hookcli.images.fit import Fitter
from hookcli.images.prepare import prepare_image
from hookcli.images.read import read_images
from hookcli.networks.load import build_skeleton, load_model
from hookcli.networks.tasks import read_predictions
from hookcli.records.images import Prediction

RANDOM = ("--weights", "random", "--device", "cpu", "--grids", "none")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
KINETICS = ((0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989))


@pytest.fixture
def inspect(run):

    def command(*words):
        code, out, err = run("inspect", *words, *RANDOM, "--format", "json")
        assert code == 0, err
        return json.loads(out), err.splitlines()

    return command


def colours(width=40, height=30, shift=0):
    """A picture without two rows or columns alike."""
    y, x = np.mgrid[:height, :width]
    planes = [(6 * x + shift) % 256, (8 * y + 3 * x) % 256, (x * y + shift) % 256]
    return Image.fromarray(np.stack(planes, 2).astype(np.uint8))


@pytest.fixture
def photo():
    colours().save("photo.png")
    return "photo.png"


@pytest.fixture
def other():
    colours(shift=99).save("other.png")
    return "other.png"


def load(name, **options):
    return load_model(ModelRequest(name, weights="random", device="cpu", **options))


def seeded(builder, **arguments):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return builder(weights=None, weights_backbone=None, **arguments).eval()


def to_tensor(picture):
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255


def normalised(picture, mean, std):
    columns = [torch.tensor(values).view(3, 1, 1) for values in (mean, std)]
    return (to_tensor(picture) - columns[0]) / columns[1]


def ids(document):
    return [layer["call_id"] for layer in document["layers"]]


def test_class_shares_are_those_of_the_highest_logits_and_sum_to_one(inspect, photo):
    name = "lraspp_mobilenet_v3_large"
    words = ("--size", "64", "--layers", "(model)", "--model-arg", "num_classes=3")
    document, _ = inspect(name, photo, *words)
    builder = getattr(torchvision.models.segmentation, name)
    # the short side of 30 becomes 64, the long one of 40 becomes 85
    pixels = normalised(F.resize(colours(), [64], antialias=True), *IMAGENET).unsqueeze(0)
    with torch.inference_mode():
        best = seeded(builder, num_classes=3)(pixels)["out"].argmax(1).numpy()
    assert best.shape == (1, 64, 85)
    counted = {
        int(c): n / best.size for c, n in zip(*np.unique(best, return_counts=True), strict=True)
    }
    said = {p["index"]: p["value"] for p in document["images"][0]["predictions"]}
    assert said == pytest.approx(counted)
    assert sum(said.values()) == pytest.approx(1)
    assert ids(document) == ["(model)[out]"]
    assert document["layers"][0]["shape"] == [1, 3, 64, 85]


def test_a_picture_too_thin_to_be_shown_whole_is_skipped(run):
    colours(2020, 20).save("thin.png")
    code, _, err = run("inspect", "lraspp_mobilenet_v3_large", "thin.png", *RANDOM)
    assert code == 3
    reason = "is 2020 by 20 pixels, too thin for this network"
    assert err.splitlines()[0] == f"error: no image can be used: 'thin.png' {reason}"


DETECTOR = "fasterrcnn_mobilenet_v3_large_320_fpn"


def test_a_head_that_is_used_for_every_level_has_a_call_for_each(inspect, photo):
    document, _ = inspect(DETECTOR, photo, "--size", "64", "--layers", "rpn.head.cls_logits")
    calls = [(layer["call_id"], layer["shape"]) for layer in document["layers"]]
    # 30 x 40 with a short side of 64 is 64 x 85, padded to 64 x 96: two levels at stride 32, one at
    # 64
    assert calls == [
        ("rpn.head.cls_logits", [1, 15, 2, 3]),
        ("rpn.head.cls_logits#1", [1, 15, 2, 3]),
        ("rpn.head.cls_logits#2", [1, 15, 1, 2]),
    ]


def test_boxes_with_label_and_score_are_those_of_the_model_itself(inspect, photo):
    arguments = {"num_classes": 3, "box_score_thresh": 0.0}
    words = [w for k, v in arguments.items() for w in ("--model-arg", f"{k}={v}")]
    document, _ = inspect(DETECTOR, photo, "--size", "64", "--layers", "(model)", *words)
    own = seeded(torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn, **arguments)
    own.transform.min_size = (64,)
    with torch.inference_mode():
        (found,) = own([to_tensor(colours())])
    assert len(found["boxes"]) > 5
    expected = [
        (int(found["labels"][i]), float(found["scores"][i]), found["boxes"][i].tolist())
        for i in sorted(range(len(found["scores"])), key=lambda i: -float(found["scores"][i]))[:5]
    ]
    said = document["images"][0]["predictions"]
    assert [p["index"] for p in said] == [label for label, _, _ in expected]
    assert [p["value"] for p in said] == pytest.approx([score for _, score, _ in expected])
    for prediction, (_, _, box) in zip(said, expected, strict=True):
        assert prediction["measure"] == "score"
        assert prediction["box"] == pytest.approx(box, abs=0.05001)
    assert ids(document) == ["(model)[0.boxes]", "(model)[0.labels]", "(model)[0.scores]"]


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        ("ssdlite320_mobilenet_v3_large", True),
        ("r3d_18", True),
        ("raft_small", True),
        ("lraspp_mobilenet_v3_large", False),
        ("resnet18", False),
    ],
)
def test_tasks_without_a_batch_axis_run_one_image_at_a_time(name, alone):
    assert build_skeleton(ModelRequest(name)).inputs.alone is alone


def test_a_detection_models_own_resizing_and_colours_can_be_set(inspect, photo):
    words = ("--layers", "transform", "--mean", "0.5,0.5,0.5", "--std", "0.25,0.5,1")
    document, _ = inspect(DETECTOR, photo, "--size", "64", *words)
    resized = F.resize(to_tensor(colours()), [64, 85], antialias=False)
    shown = (resized - 0.5) / torch.tensor([0.25, 0.5, 1.0]).view(3, 1, 1)
    seen = document["layers"][0]
    assert (seen["call_id"], seen["shape"]) == ("transform[0.tensors]", [1, 3, 64, 96])
    assert (seen["min"], seen["max"]) == pytest.approx((float(shown.min()), float(shown.max())))
    assert seen["mean"] == pytest.approx(float(shown.mean()) * 85 / 96, abs=1e-5)  # padded with 0


@pytest.mark.parametrize("words", [("--resize", "64"), ("--interpolation", "nearest")])
def test_a_detection_model_refuses_a_resizing_that_it_does_itself(run, photo, words):
    ended = run("inspect", DETECTOR, photo, *RANDOM, *words)
    assert ended.code == 2
    assert ended.err.startswith("error: a detection model resizes by itself\n")


def grey_frames(*levels):
    return [Image.new("RGB", (48, 36), (level, level, level)) for level in levels]


def frame_levels(pixels):
    """The grey of every frame of a clip (3, T, H, W) of grey pictures."""
    mean, std = (torch.tensor(values).view(3, 1, 1, 1) for values in KINETICS)
    return ((pixels * std + mean) * 255).mean((0, 2, 3)).round().int().tolist()


def test_a_still_image_becomes_a_clip_of_16_frames_and_the_run_says_so(inspect, photo):
    document, err = inspect("mc3_18", photo, "--size", "32", "--layers", "stem.0")
    assert err[-3] == "the model saw a clip of 16 frames, taken from the still image"
    (image,), (layer,) = document["images"], document["layers"]
    assert image["pixels_shape"] == [1, 3, 16, 32, 32]
    assert layer["shape"] == [1, 64, 16, 16, 16]
    # 112 pixels are cut out of 128 x 171; 32 out of two sevenths of that
    frame = F.center_crop(F.resize(to_tensor(colours()), [37, 49], antialias=False), [32, 32])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in KINETICS)
    clip = ((frame - mean) / std).unsqueeze(1).expand(-1, 16, -1, -1).unsqueeze(0)
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(0)
        out = torchvision.models.video.mc3_18(weights=None).eval().stem[0](clip)
    assert layer["mean"] == pytest.approx(float(out.mean()), abs=1e-3 * float(out.std()))
    assert layer["std"] == pytest.approx(float(out.std()), rel=1e-3)


def test_a_folder_is_a_clip_of_its_files_by_name(inspect):
    Path("frames").mkdir()
    for name, picture in zip("bca", grey_frames(100, 200, 0), strict=True):
        picture.save(f"frames/{name}.png")
    document, err = inspect("mc3_18", "frames", "--clip", "--size", "16", "--layers", "stem.0")
    assert err[-3] == "the model saw a clip of 16 frames, taken from 3 frames"
    assert [image["key"] for image in document["images"]] == ["frames"]
    assert "--clip" in document["command"]
    (source,), _ = read_images(["frames"], clip_frames=16)
    pixels = load("mc3_18", size=16).prepare.to_pixels(source.read().pictures)
    assert frame_levels(pixels) == [0] * 4 + [100] * 8 + [200] * 4  # 7.5 frames apart


def test_one_picture_is_its_own_pair_and_the_run_says_so(photo):
    loaded = build_skeleton(ModelRequest("raft_small", size=128))
    ((source,), _) = read_images([photo])
    note = prepare_image(Fitter(loaded.prepare), source).note
    assert note == "a pair: the same image twice, resized to 168 by 128 pixels"


def test_a_second_picture_makes_the_pair(inspect, photo, other):
    words = ("--layers", "(model)", "--pair", other, "--at", "input")
    document, err = inspect("raft_small", photo, "--size", "128", *words)
    assert err[-3] == "the model saw a pair of images, resized to 168 by 128 pixels"
    assert ids(document) == ["input:(model)[0]", "input:(model)[1]"]
    # 40 x 30 with a short side of 128 is 170.7 wide, and 168 is the nearest multiple of 8
    means = [
        to_tensor(colours(shift=shift).resize((168, 128))).mul(2).sub(1).mean().item()
        for shift in (0, 99)
    ]
    assert [layer["shape"] for layer in document["layers"]] == [[1, 3, 128, 168]] * 2
    assert [layer["mean"] for layer in document["layers"]] == pytest.approx(means, abs=1e-5)
    assert "--pair" in document["command"]
    # the flow that is reported is the last of the twelve
    own = torchvision.models.optical_flow.raft_small
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(0)
        pair = [to_tensor(colours(shift=s).resize((168, 128)))[None] * 2 - 1 for s in (0, 99)]
        last = own(weights=None).eval()(*pair)[-1][0]
    lengths = last.square().sum(0).sqrt()
    said = {p["category"]: p["value"] for p in document["images"][0]["predictions"]}
    expected = {"mean flow": float(lengths.mean()), "greatest flow": float(lengths.max())}
    assert said == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("words", [("--resize", "99"), ("--mean", "0,0,0")])
def test_what_does_nothing_to_a_flow_model_is_refused(run, photo, words):
    code, _, err = run("inspect", "raft_small", photo, *RANDOM, *words)
    assert code == 2
    assert err.startswith(f"error: {words[0]} does nothing to an optical flow model\n")


@pytest.mark.parametrize(
    ("size", "short", "expected"),
    [
        ((300, 200), None, (304, 200)),  # 37.5 and 25 eighths
        ((2000, 1000), None, (960, 480)),
        ((100, 400), 256, (256, 1024)),  # asked for, so longer than 960
        ((12_000, 130), None, (960, 128)),
    ],
)
def test_flow_sizes_are_multiples_of_8_from_128_up(size, short, expected):
    pixels = build_skeleton(ModelRequest("raft_small", size=short)).prepare.to_pixels(
        [Image.new("RGB", size)]
    )
    assert tuple(pixels.shape) == (2, 3, expected[1], expected[0])


def walk(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from walk(part)


def test_the_records_of_a_quantized_model_are_those_of_dequantized_clones():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is on its way out
        torch.manual_seed(0)
        model = torchvision.models.quantization.resnet18(weights=None, quantize=True).eval()
    pixels = normalised(colours(32, 32), *IMAGENET).unsqueeze(0)
    clones: dict[str, list[torch.Tensor]] = {}

    def remember(path, output):
        clones.setdefault(path, []).extend(t.dequantize().clone() for t in walk(output))

    leaves = [
        (path, m)
        for path, m in model.named_modules()
        if type(m) is quantized.Linear or not list(m.children())
    ]
    handles = [
        m.register_forward_hook(lambda _m, _i, out, path=path: remember(path, out))
        for path, m in leaves
    ]
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        model(pixels)
        for handle in handles:
            handle.remove()
        with hookcli.capture(model, layers="leaf") as captured:
            model(pixels)
    seen: dict[str, list] = {}
    for record in captured.records:
        seen.setdefault(record.call.layer.module_path, []).append(record.stats)
    assert seen.keys() == clones.keys()
    assert any(s.dtype == "quint8" for stats in seen.values() for s in stats)
    for path, stats in seen.items():
        assert len(stats) == len(clones[path])
        for one, clone in zip(stats, clones[path], strict=True):
            values = clone.double().numpy()
            assert one.shape == values.shape
            assert (one.min, one.max) == (values.min(), values.max())
            room = 1e-5 * max(abs(values.mean()), values.std(), 1e-30)
            assert one.mean == pytest.approx(values.mean(), abs=room)
            assert one.std == pytest.approx(values.std(), abs=room)
            assert one.zero_fraction == (values == 0).mean()


def test_a_quantized_name_builds_the_float_model_with_random_weights(inspect, photo):
    document, _ = inspect("quantized_resnet18", photo, "--size", "32", "--layers", "conv1")
    assert document["layers"][0]["dtype"] == "float32"
    assert document["model"]["task"] == "quantization"


def logits(*shares):
    return [math.log(share) for share in shares]


def test_classes_are_listed_by_their_softmax_the_most_probable_first():
    output = torch.tensor([logits(1, 2, 5), logits(6, 1, 1)])
    first, second = read_predictions(output, ("a", "b", "c"))
    assert [(p.category, p.index, round(p.value, 6)) for p in first] == [
        ("c", 2, 0.625),
        ("b", 1, 0.25),
        ("a", 0, 0.125),
    ]
    assert (second[0].category, second[0].measure) == ("a", "probability")
    assert second[0].value == pytest.approx(0.75)


def test_classes_go_by_number_where_the_names_do_not_fit():
    (said,) = read_predictions(torch.tensor([[0.0, 1.0]]), ("a", "b", "c"))
    assert [p.category for p in said] == ["class 1", "class 0"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_leave_other_images_their_classes(bad):
    broken, whole = read_predictions(torch.tensor([[0.0, bad], logits(1, 3)]), ())
    assert broken == (
        Prediction("probability", "no prediction: the logits are not finite", None, None),
    )
    assert [(p.index, round(p.value, 6)) for p in whole] == [(1, 0.75), (0, 0.25)]


def class_map(*rows, classes=3):
    return nn.functional.one_hot(torch.tensor(rows), classes).permute(2, 0, 1)[None].float()


def test_shares_of_the_image_are_counted_and_classes_without_any_left_out():
    output = {"out": class_map([0, 1], [1, 1]), "aux": torch.zeros(1, 3, 2, 2)}
    (said,) = read_predictions(output, ("sky", "sea", "sand"))
    assert said == (
        Prediction("share of the image", "sea", 1, 0.75),
        Prediction("share of the image", "sky", 0, 0.25),
    )


def boxes(*scores):
    """One box a score; the first is 1.04 pixels wide, the next 2.04, …"""
    return {
        "boxes": torch.tensor([[0.0, 0.0, i + 1.04, 2.0] for i in range(len(scores))]).view(-1, 4),
        "labels": torch.tensor([i % 2 + 1 for i in range(len(scores))], dtype=torch.int64),
        "scores": torch.tensor(scores),
    }


def test_boxes_are_listed_by_score_the_highest_first():
    (said,) = read_predictions([boxes(0.25, 0.75, 0.5)], ("background", "cat"))
    assert said == (
        Prediction("score", "class 2", 2, 0.75, (0.0, 0.0, 2.0, 2.0)),
        Prediction("score", "cat", 1, 0.5, (0.0, 0.0, 3.0, 2.0)),
        Prediction("score", "cat", 1, 0.25, (0.0, 0.0, 1.0, 2.0)),
    )


def test_no_more_than_five_boxes_are_reported_and_images_without_any_have_none():
    scores = [i / 8 for i in range(8)]
    many, none = read_predictions([boxes(*scores), boxes()], ())
    assert [p.value for p in many] == [0.875, 0.75, 0.625, 0.5, 0.375]
    assert none == ()


def test_a_label_below_0_is_a_number_and_not_the_last_name():
    (said,) = read_predictions([boxes(0.5) | {"labels": torch.tensor([-1])}], ("background", "cat"))
    assert said[0].category == "class -1"


def test_a_box_or_a_score_that_is_not_finite_is_none():
    broken = boxes(0.5, 0.25, math.nan)
    broken["boxes"][0, 2] = math.inf
    (said,) = read_predictions([broken], ())
    whole = [(0.0, 0.0, 3.0, 2.0), None, (0.0, 0.0, 2.0, 2.0)]
    assert [(p.value, p.box) for p in said] == list(zip((None, 0.5, 0.25), whole, strict=True))


def test_flow_is_the_mean_and_the_greatest_length_of_the_last():
    last = torch.tensor([[[3.0, 0.0]], [[4.0, 0.0]]]).unsqueeze(0)  # lengths 5 and 0
    (said,) = read_predictions([torch.full((1, 2, 1, 2), 99.0), last], ())
    assert said == (
        Prediction("pixels", "mean flow", None, 2.5),
        Prediction("pixels", "greatest flow", None, 5.0),
    )


def test_an_output_of_no_known_form_has_no_predictions():
    outputs = [
        None,
        "text",
        [],
        {},
        (),
        {"logits": torch.zeros(1, 2)},
        {"out": torch.zeros(1, 2)},
        [torch.zeros(1, 3, 4, 4)],
        [boxes(0.5), "text"],
        [{"boxes": [[0, 0, 1, 1]], "labels": [1], "scores": [0.5]}],
        [boxes(0.5) | {"labels": torch.tensor([1, 2])}],
        torch.zeros(3),
        torch.zeros(1, 3, 4, 4),
        torch.zeros(1, 3, dtype=torch.int64),
        torch.eye(3).to_sparse(),
        torch.zeros(1, 3, device="meta"),
    ]
    assert [output for output in outputs if read_predictions(output, ()) != []] == []


def test_a_quantized_output_has_no_predictions():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's quantized tensors are on their way out
        output = torch.quantize_per_tensor(torch.zeros(1, 3), 0.1, 0, torch.quint8)
        assert read_predictions(output, ()) == []


def show(picture, **options):
    return build_skeleton(ModelRequest("resnet18", **options)).prepare.to_pixels([picture])


def crop(picture, resize, side, interpolation=InterpolationMode.BILINEAR):
    resized = F.resize(picture, [resize], interpolation=interpolation, antialias=True)
    return F.center_crop(resized, [side, side])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, lambda p: normalised(crop(p, 256, 224), *IMAGENET)),
        ({"size": 112}, lambda p: normalised(crop(p, 128, 112), *IMAGENET)),
        ({"size": 32, "resize": 100}, lambda p: normalised(crop(p, 100, 32), *IMAGENET)),
        (
            {"size": 28, "mean": (0.5, 0.25, 0.0), "std": (1.0, 0.5, 0.25)},
            lambda p: normalised(crop(p, 32, 28), (0.5, 0.25, 0.0), (1.0, 0.5, 0.25)),
        ),
        (
            {"size": 28, "interpolation": "bicubic"},
            lambda p: normalised(crop(p, 32, 28, InterpolationMode.BICUBIC), *IMAGENET),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_pixels_are_those_of_torchvisions_functions_called_one_by_one(options, expected):
    picture = colours(90, 70)
    torch.testing.assert_close(show(picture, **options), expected(picture), rtol=0, atol=1e-6)


def test_what_the_options_changed_reaches_the_network_and_the_manifest(inspect, photo):
    words = ("--size", "28", "--resize", "50", "--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5")
    document, _ = inspect(
        "resnet18",
        photo,
        *words,
        *("--interpolation", "nearest", "--layers", "conv1", "--at", "input"),
    )
    pixels = normalised(crop(colours(), 50, 28, InterpolationMode.NEAREST), (0.5,) * 3, (0.5,) * 3)
    seen = document["layers"][0]
    assert seen["mean"] == pytest.approx(float(pixels.mean()), abs=1e-6)
    assert (seen["min"], seen["max"]) == (float(pixels.min()), float(pixels.max()))
    told = json.loads(Path("hookcli-runs/resnet18-photo/manifest.json").read_text())["model"]
    assert told["preprocessing"] == (
        "resized to 50 pixels on the short side (nearest), cropped to 28x28 in the middle, "
        "scaled to 0 to 1, mean 0.5 0.5 0.5, standard deviation 0.5 0.5 0.5"
    )


def test_a_vision_transformer_is_shown_pictures_of_the_size_it_is_built_for():
    request = ModelRequest("vit_b_16", arguments=(("image_size", "32"),))
    assert tuple(build_skeleton(request).prepare.to_pixels([colours()]).shape) == (3, 32, 32)


def test_maxvit_takes_the_sizes_that_its_windows_divide():
    """Its last block has a side of a thirty-second, which windows of 7 divide."""
    loaded = build_skeleton(ModelRequest("maxvit_t", size=448))
    assert loaded.prepare.fixed == (448, 448)
    blocks: Any = loaded.module.blocks
    assert blocks[3].layers[0].layers.grid_attention.n_partitions == 2


def test_maxvit_refuses_a_size_that_its_windows_do_not_divide(run):
    code, _, err = run("layers", "maxvit_t", "--size", "64")
    assert code == 2
    assert err.startswith("error: maxvit_t cannot be built with input_size=(64, 64): ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--mean", "0.5,0.5"), "--mean and --std need a number for each band: give both"),
        (("--std", "1,nan,1"), "--std takes three numbers, one per colour: 0.485,0.456,0.406"),
        (("--std", "1,0,1"), "--std must be greater than 0"),
    ],
)
def test_colours_that_no_preprocessing_can_have_are_refused(run, photo, words, error):
    code, _, err = run("inspect", "resnet18", photo, *RANDOM, *words)
    assert (code, err.splitlines()[0]) == (2, f"error: {error}")


def test_a_side_that_would_fill_the_memory_is_refused(run):
    code, _, err = run("layers", "resnet18", "--size", "8193")
    assert code == 2
    assert err.startswith("error: Invalid value for '--size': ")
    assert "8192" in err.splitlines()[0]
