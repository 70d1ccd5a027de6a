"""``--text``: Grad-CAMs of the similarity to a text, against plain scripts of the libraries."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import cosine_similarity

from hookcli.render.draw.heatmap import draw_heat
from tests.conftest import PHOTOS

os.environ["HF_HUB_OFFLINE"] = "1"
CAT, TEXTS = PHOTOS / "cat.png", ("a cat", "two dogs, at night")
CHARACTERS = [*string.ascii_lowercase, *string.digits, *".,!'"]
ENDS = ("<|startoftext|>", "<|endoftext|>")
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def plain_cam(layer, forward, text):
    """The scaled Grad-CAM (8, 8) of a layer whose last 64 tokens are the patches."""
    kept = []
    handle = layer.register_forward_hook(
        lambda _module, _args, output: output.retain_grad() or kept.append(output)
    )
    score = cosine_similarity(forward(), text, dim=-1)
    score.sum().backward()
    handle.remove()
    values, slopes = (each.detach()[0, -64:] for each in (kept[0], kept[0].grad))
    cam = (values * slopes.mean(0)).sum(1).relu().reshape(8, 8)
    return cam / cam.max(), float(score.detach())


@pytest.fixture
def drawn(monkeypatch):
    """The maps that are drawn, scaled to 1."""
    maps = []

    def keep(seen, values, heading, box=None):
        maps.append(torch.tensor(values).relu() / values.max())
        return draw_heat(seen, values, heading, box)

    monkeypatch.setattr("hookcli.products.heats.draw_heat", keep)
    return maps


def look(run, model, layer):
    words = [word for text in TEXTS for word in ("--text", text)]
    ended = run("gradients", model, CAT, "--cam", layer, *words, "--grids", "none", "-o", "out")
    assert ended.code == 0, ended.err
    found = json.loads(Path("out/report.json").read_text())
    image = found["images"][0]
    return [each["value"] for each in (image["score"], *image["other_scores"])], found["heats"]


@pytest.fixture
def tokenizer(hf):
    names = [*CHARACTERS, *(f"{each}</w>" for each in CHARACTERS), "ca", "cat</w>", *ENDS]
    Path("vocab.json").write_text(json.dumps({name: at for at, name in enumerate(names)}))
    Path("merges.txt").write_text("#version: 0.2\nc a\nca t</w>\n")
    return hf.CLIPTokenizer(vocab="vocab.json", merges="merges.txt")


def make_clip(hf, words):
    vision = {**LAYERS, "hidden_size": 32, "image_size": 64, "patch_size": 8}
    both = {"text_config": words, "vision_config": vision, "projection_dim": 24}
    return hf.CLIPModel(hf.CLIPConfig(**both)), "vision_model.encoder.layers.1.layer_norm1"


def make_siglip(hf, words):
    vision = {**LAYERS, "hidden_size": 32, "image_size": 64, "patch_size": 8}
    both = {"text_config": {**words, "projection_size": 32}, "vision_config": vision}
    return hf.SiglipModel(hf.SiglipConfig(**both)), "encoder.layers.1.layer_norm1"


@pytest.mark.transformers
@pytest.mark.parametrize("make", [make_clip, make_siglip])
def test_a_text_is_compared_as_transformers_does(hf, tokenizer, run, drawn, make):
    torch.manual_seed(0)
    first, last = (tokenizer.convert_tokens_to_ids(each) for each in ENDS)
    ids = {"bos_token_id": first, "eos_token_id": last, "pad_token_id": last}
    size = {"vocab_size": len(tokenizer), "hidden_size": 32, "max_position_embeddings": 24}
    model, layer = make(hf, {**LAYERS, **ids, **size})
    model.eval().save_pretrained("model")
    tokenizer.save_pretrained("model")
    processor = hf.SiglipImageProcessor(size={"height": 64, "width": 64})
    processor.save_pretrained("model")
    scores, pictures = look(run, "hf:./model", layer)

    pixels = processor(images=Image.open(CAT).convert("RGB"), return_tensors="pt")
    for text, score, cam in zip(TEXTS, scores, drawn, strict=True):
        tokens = tokenizer([text], padding="max_length", max_length=24, return_tensors="pt")
        with torch.no_grad():
            embedding = model.get_text_features(**tokens).pooler_output
        module = model.get_submodule(layer if "vision" in layer else f"vision_model.{layer}")
        expected, value = plain_cam(
            module, lambda: model.get_image_features(**pixels).pooler_output, embedding
        )
        assert score == pytest.approx(value, abs=1e-6)
        torch.testing.assert_close(cam, expected, rtol=0, atol=1e-4)
    ids = [picture["call_id"].rpartition("@")[2] for picture in pictures]
    assert ids == ["text:a-cat", "text:two-dogs-at-night"]


@pytest.mark.libraries
def test_a_text_is_compared_as_open_clip_does(open_clip, run, drawn):
    folder = Path("model")
    folder.mkdir()
    text = {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    vision = {"image_size": 64, "layers": 2, "width": 32, "head_width": 8, "patch_size": 8}
    config = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}
    preprocess = {"preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    content = json.dumps({"model_cfg": config, **preprocess})
    (folder / "open_clip_config.json").write_text(content)
    torch.manual_seed(0)
    model = open_clip.create_model("local-dir:model", load_weights=False)
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    scores, _ = look(run, "open_clip:./model", "transformer.resblocks.1.ln_1")

    model, _, transform = open_clip.create_model_and_transforms("local-dir:model")
    tokens = open_clip.get_tokenizer("local-dir:model")([*TEXTS])
    with torch.no_grad():
        embeddings = model.eval().encode_text(tokens)
    pixels = transform(Image.open(CAT).convert("RGB"))[None]
    for row, score, cam in zip(embeddings, scores, drawn, strict=True):
        layer = model.visual.transformer.resblocks[1].ln_1
        expected, value = plain_cam(layer, lambda: model.encode_image(pixels), row[None])
        assert score == pytest.approx(value, abs=1e-6)
        torch.testing.assert_close(cam, expected, rtol=0, atol=1e-4)


@pytest.mark.transformers
def test_a_model_without_texts_and_a_type_without_a_tokenizer_are_refused(hf, run):
    look = ("--cam", "auto", "--text", "a cat", "-o", "out")
    ended = run("gradients", "hf-config:vit", CAT, *look)
    assert ended.code == 2
    assert "error: --text: hf-config:vit takes no texts" in ended.err
    ended = run("gradients", "hf-config:clip", CAT, *look)
    assert "error: --text: hf-config:clip is a type without a tokenizer" in ended.err
    assert not Path("out").exists()
