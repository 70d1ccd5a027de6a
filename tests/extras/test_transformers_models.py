"""Models named ``hf:FOLDER``, against what transformers itself does with the same folder."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import numpy as np
import pytest
import torch

from hookcli.config import ModelRequest
from hookcli.networks.load import load_model
from tests.extras.plain_hooks import clone_leaves, count_equal, forward, observe_leaves, opaque
from tests.extras.tiny_transformers import ARCHITECTURES

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = pytest.mark.transformers

TOWERS = {
    "clip": "CLIPVisionModelWithProjection",
    "siglip": "SiglipVisionModel",
    "sam": "SamVisionModel",
}
PIPELINES = {
    "vit": "image-classification",
    "dinov2_with_registers": "image-classification",
    "swin": "image-classification",
    "convnext": "image-classification",
    "beit": "image-classification",
    "mobilevit": "image-classification",
    "detr": "object-detection",
    "rt_detr": "object-detection",
    "yolos": "object-detection",
    "segformer": "image-segmentation",
    "mask2former": "image-segmentation",
    "depth_anything": "depth-estimation",
}


def library_model(hf, folder):
    name = TOWERS.get(folder.name) or hf.AutoConfig.from_pretrained(folder).architectures[0]
    config = hf.AutoConfig.from_pretrained(folder)
    if folder.name in TOWERS:
        vision = config.vision_config
        if folder.name == "clip":
            vision.projection_dim = config.projection_dim
        return getattr(hf, name).from_pretrained(folder, config=vision).eval()
    return getattr(hf, name).from_pretrained(folder).eval()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_leaf_is_what_an_independent_hook_clones(hf, folders, photos, tmp_path, name):
    processor = hf.AutoImageProcessor.from_pretrained(folders / name)
    pixels = processor(opaque(photos[0]), return_tensors="pt")["pixel_values"]
    expected, _ = clone_leaves(library_model(hf, folders / name), pixels)
    run = observe_leaves(f"hf:{folders / name}", photos[0], tmp_path / "run")
    assert count_equal(run, expected) > 10


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pixels_are_those_of_the_models_own_processor_bit_by_bit(hf, folders, photos, name):
    prepare = load_model(ModelRequest(f"hf:{folders / name}")).prepare
    processor = hf.AutoImageProcessor.from_pretrained(folders / name)
    assert len(photos) == 5
    for file in photos:
        expected = processor(opaque(file), return_tensors="pt")["pixel_values"][0]
        assert torch.equal(prepare.to_pixels([opaque(file)]), expected), file.name


@pytest.mark.parametrize("name", PIPELINES)
def test_predictions_are_those_of_the_librarys_pipeline(hf, folders, photos, name):
    loaded = load_model(ModelRequest(f"hf:{folders / name}"))
    pipeline = hf.pipeline(PIPELINES[name], model=str(folders / name))
    for file in photos[:2]:
        picture = opaque(file)
        output = forward(loaded, picture)
        (said,) = loaded.read(output, [picture.size])
        check = globals()[f"check_{PIPELINES[name].replace('-', '_')}"]
        check(said, pipeline, picture)


@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_a_classifier_of_another_kind_is_read_as_its_pipeline_does(
    hf, folders, photos, tmp_path, problem
):
    folder = shutil.copytree(folders / "vit", tmp_path / "vit")
    content = json.loads((folder / "config.json").read_text()) | {"problem_type": problem}
    (folder / "config.json").write_text(json.dumps(content))
    loaded = load_model(ModelRequest(f"hf:{folder}"))
    picture = opaque(photos[0])
    (said,) = loaded.read(forward(loaded, picture), [picture.size])
    activation = {} if problem != "regression" else {"function_to_apply": "none"}
    pipeline = hf.pipeline("image-classification", model=str(folder))
    expected = pipeline(picture, top_k=5, **activation)
    assert [each.category for each in said] == [each["label"] for each in expected]
    values = [each["score"] for each in expected]
    assert [each.value for each in said] == pytest.approx(values, rel=1e-6)


def check_image_classification(said, pipeline, picture):
    expected = pipeline(picture, top_k=5)
    assert [each.category for each in said] == [each["label"] for each in expected]
    values = [each["score"] for each in expected]
    assert [each.value for each in said] == pytest.approx(values, rel=1e-6)


def check_object_detection(said, pipeline, picture):
    expected = sorted(pipeline(picture, threshold=0.0), key=lambda each: -each["score"])
    assert len(said) == 5
    for mine, own in zip(said, expected, strict=False):
        assert mine.value == pytest.approx(own["score"], rel=1e-6)
        box = [own["box"][side] for side in ("xmin", "ymin", "xmax", "ymax")]
        assert all(abs(int(a) - b) <= 1 for a, b in zip(mine.box, box, strict=True)), (mine, own)
        assert mine.category == own["label"]


def check_image_segmentation(said, pipeline, picture):
    expected = pipeline(picture)
    areas = {i: np.count_nonzero(np.asarray(each["mask"])) for i, each in enumerate(expected)}
    if expected and expected[0]["score"] is not None:
        assert [each.category for each in said] == [
            each["label"] for each in sorted(expected, key=lambda each: -each["score"])
        ]
        assert len(said) > 0
        return
    total = picture.width * picture.height
    shares = {each["label"]: areas[i] / total for i, each in enumerate(expected)}
    assert {each.category: each.value for each in said} == pytest.approx(shares)


def check_depth_estimation(said, pipeline, picture):
    depth = pipeline(picture)["predicted_depth"]
    assert [each.value for each in said] == pytest.approx(
        [float(depth.mean()), float(depth.min()), float(depth.max())], rel=1e-5
    )


@pytest.mark.parametrize("name", TOWERS)
def test_the_vision_part_gives_the_features_of_the_whole_model(hf, folders, photos, name):
    loaded = load_model(ModelRequest(f"hf:{folders / name}"))
    pixels = loaded.prepare.to_pixels([opaque(photos[0])])[None]
    output: Any = forward(loaded, opaque(photos[0]))
    whole = hf.AutoModel.from_pretrained(folders / name).eval()
    with torch.no_grad():
        if name == "sam":
            mine, expected = output.last_hidden_state, whole.get_image_embeddings(pixels)
        else:
            features = whole.get_image_features(pixel_values=pixels)
            expected = getattr(features, "pooler_output", features)
            mine = output.image_embeds if name == "clip" else output.pooler_output
    assert torch.equal(mine, expected)
    ((said,),) = loaded.read(output, [(97, 61)])
    assert said.category == f"{expected.shape[1]} features, no classes"
