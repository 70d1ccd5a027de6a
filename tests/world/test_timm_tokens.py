"""The layouts of timm's families, made small: tokens of any number, rows and columns, windows."""

from __future__ import annotations

import pytest

from tests.layout_walk import check_tokens, walk_layouts

SMALL = {"depth": 2, "embed_dim": 24, "num_heads": 2}
STAGES = {"depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 1), "embed_dim": 12, "window_size": 4}


@pytest.fixture(scope="module")
def timm():
    return pytest.importorskip("timm")


WITHOUT_CHANNELS = (".softmax", ".attn_drop", ".bias_act")  # weights and biases of attention


@pytest.mark.parametrize(
    ("name", "side", "arguments", "before"),
    [
        ("vit_small_patch14_reg4_dinov2", 56, SMALL, 5),
        ("vit_base_patch16_clip_224", 64, SMALL, 1),
        ("deit_tiny_distilled_patch16_224", 64, SMALL, 2),
        ("beit_base_patch16_224", 64, SMALL, 1),
        ("cait_xxs24_224", 64, SMALL, 0),  # its class token joins after the patches' blocks
        ("xcit_nano_12_p16_224", 64, SMALL | {"embed_dim": 32}, 1),
    ],
)
def test_all_tokens_of_a_transformer_are_known(timm, name, side, arguments, before):
    model = timm.create_model(name, num_classes=7, img_size=side, **arguments).eval()
    check_tokens(model, side, 4, before)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("swinv2_tiny_window8_256", STAGES | {"img_size": 64}),
        ("convnext_atto", {"depths": (1, 1, 1, 1), "dims": (12, 20, 24, 28)}),
        ("hiera_tiny_224", {"img_size": 64, "stages": (1, 1, 1, 1), "embed_dim": 16}),
        ("maxvit_rmlp_pico_rw_256", {"img_size": 64, "embed_dim": (32,) * 4, "depths": (1,) * 4}),
    ],
)
def test_all_layouts_of_a_model_of_stages_are_known(timm, name, arguments):
    model = timm.create_model(name, num_classes=7, **arguments).eval()
    unknown = [i for i, (_, each) in walk_layouts(model, 64).items() if not each.channels_first]
    assert all(i.endswith(WITHOUT_CHANNELS) for i in unknown), unknown
