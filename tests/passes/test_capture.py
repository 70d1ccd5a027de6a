"""hookcli as a library: a block in which the layers of any module are observed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import hookcli
from hookcli.errors import NoLayerMatchedError, RequestError
from hookcli.passes.capture import capture
from hookcli.records.layer_records import ChannelRange, TensorStats
from hookcli.records.layouts import Layout
from tests import toy_models as toys
from tests.processes import forget, start
from tests.toy_models import pixel


def ids(captured):
    return [record.call.id for record in captured.records]


def test_a_record_tells_what_a_layer_returned():
    model = toys.InplaceRelu()
    with capture(model, "conv") as captured:
        model(pixel(1.0))
    (record,) = captured.records
    assert record.call.id == "conv"
    assert record.layout == Layout("NCHW", 1, 1, 1)
    assert record.stats == TensorStats(
        shape=(1, 2, 1, 1),
        dtype="float32",
        mean=-0.5,
        std=pytest.approx(1.5),  # type: ignore[arg-type]
        min=-2.0,
        max=1.0,
        zero_fraction=0.0,
    )
    assert record.channels == ChannelRange((-2.0, 1.0), (-2.0, 1.0))


def test_figures_are_over_the_whole_batch():
    model = toys.InplaceAdd()
    with capture(model) as captured:
        model(pixel(1.0, 3.0))  # the convolution gives 3 and 9
    (record,) = captured.records
    assert record.stats.shape == (2, 1, 1, 1)
    assert (record.stats.mean, record.stats.std) == pytest.approx((6.0, 3.0))
    assert record.channels == ChannelRange((3.0,), (9.0,))


def test_several_forms_and_an_exclusion_are_understood():
    model = toys.Nested()
    with capture(model, ["conv", "block"], exclude="tail") as captured:
        model(pixel(1.0))
    assert ids(captured) == ["head", "block.conv", "block"]
    assert repr(captured) == "Captured(Nested: 3 tensors of 3 chosen layers)"
    assert captured.tensors == {}
    assert [layer.module_path for layer in captured.layers] == ["head", "block", "block.conv"]


def test_tensors_are_copies_by_call_id():
    model = toys.ReusedRelu()
    with capture(model, ["conv", "relu"], keep=True) as captured:
        output = model(pixel(1.0))
    output.detach().fill_(77.0)
    assert {call: tensor.flatten().tolist() for call, tensor in captured.tensors.items()} == {
        "conv1": [2.0],
        "relu": [2.0],
        "conv2": [-2.0],
        "relu#1": [0.0],
    }


def gradients(model, observed):
    model.zero_grad()
    if observed:
        with capture(model, "all", at="both", keep=True):
            model(pixel(2.0)).sum().backward()
    else:
        model(pixel(2.0)).sum().backward()
    return {name: parameter.grad.item() for name, parameter in model.named_parameters()}


def test_gradients_are_the_same_with_and_without_capture():
    # 2 -> head x3 -> conv x2 -> relu -> tail x5: each weight's gradient is the rest of the product
    expected = {"head.weight": 20.0, "block.conv.weight": 30.0, "tail.weight": 12.0 * 1.0}
    model = toys.Nested().train()
    assert gradients(model, observed=True) == expected
    assert gradients(model, observed=False) == expected


def test_layers_that_did_not_run_are_named_with_a_reason():
    model = toys.UncalledBranch().eval()
    with capture(model) as captured:
        model(pixel(1.0))
    assert [(layer.layer.module_path, layer.reason) for layer in captured.uncalled] == [
        ("aux", "auxiliary head, runs only in training mode"),
        ("spare", "the model did not call it for this input"),
    ]


def test_a_form_that_matches_nothing_is_an_error_that_names_what_is_close():
    with pytest.raises(NoLayerMatchedError) as raised, capture(toys.Nested(), "bloc"):
        pass
    assert raised.value.message == "no layer matches 'bloc'"
    assert raised.value.hint == "did you mean block, block.conv, block.relu?"


def compiled(model):
    return torch.compile(model, backend="eager")


def in_place():
    model = nn.Sequential(nn.ReLU())
    model.compile(backend="eager")
    model(pixel(1.0))
    return model


@pytest.mark.parametrize(
    ("make", "layers"),
    [
        (lambda: compiled(nn.Sequential(nn.ReLU())), ["0", "(model)"]),
        (lambda: nn.Sequential(compiled(nn.ReLU())), ["0", "(model)"]),
        (in_place, ["0", "(model)"]),
    ],
    ids=["torch.compile", "a part", "module.compile"],
)
def test_a_compiled_model_is_observed_in_eager_mode(make, layers):
    model = make()
    with (
        pytest.warns(UserWarning, match="^compiled: its layers are run in eager mode$"),
        capture(model, "all") as captured,
    ):
        model(pixel(1.0))
    assert ids(captured) == layers
    assert captured.uncalled == ()


@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, torch.Tensor.to_mkldnn])
def test_a_kept_tensor_of_another_layout_is_drawn(change):
    model = nn.Identity()
    with capture(model, "all", keep=True) as captured:
        model(change(torch.eye(3)[None, None]))
    assert "<img" in captured._repr_html_()


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_what_was_captured_before_an_error_stays_and_no_hook_does(error):
    model = toys.RaisesInside(error).eval()
    with pytest.raises(type(error)), capture(model, "all") as captured:
        model(pixel(1.0))
    assert ids(captured) == ["conv", "frozen", "broken.inner"]
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_no_name_of_the_package_turns_into_the_module_of_that_name():
    code = forget("hookcli") + (
        "import hookcli, types\n"
        "print([isinstance(getattr(hookcli, n), types.ModuleType) for n in 2 * hookcli.__all__])"
    )
    start(code, out="out.txt").join()
    assert Path("out.txt").read_text() == f"{[False] * 2 * len(hookcli.__all__)}\n"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_output_is_refused_and_named(layout):
    class Ragged(nn.Module):
        def forward(self, x):
            return torch.nested.nested_tensor([x[0], x[0, :1]], layout=layout)

    model = nn.Sequential(Ragged())
    with (
        hookcli.capture(model, layers="Ragged") as _,
        pytest.raises(RequestError, match=r"^a layer returned a nested tensor"),
    ):
        model(torch.ones(1, 2))
    assert not any(module._forward_hooks for module in model.modules())


def test_a_lazy_module_is_captured_in_the_forward_that_sizes_it():
    model = nn.Sequential(nn.LazyConv2d(2, 1), nn.LazyLinear(3))
    with capture(model, ["conv", "linear"]) as captured:
        model(torch.ones(1, 5, 4, 4))
    assert [(r.call.id, r.stats.shape) for r in captured.records] == [
        ("0", (1, 2, 4, 4)),
        ("1", (1, 2, 4, 3)),
    ]
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("channels", "example", "axis"),
    [(5, None, 1), (6, torch.rand(1, 3, 6, 6), 1), (6, None, None)],
)
def test_the_width_or_an_example_shows_the_channels_of_a_norm_of_maps(channels, example, axis):
    model = nn.Sequential(nn.Conv2d(3, channels, 1), toys.NormOfMaps(channels))
    with hookcli.capture(model, layers="1", example=example) as captured:
        model(torch.rand(1, 3, 6, 6))
    assert captured.records[0].layout.channel_axis == axis


def test_a_model_on_the_meta_device_has_no_values_to_show():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1, device="meta"))
    with (
        hookcli.capture(model) as _,
        pytest.raises(hookcli.HookcliError, match="on the meta device, which holds no values"),
    ):
        model(torch.zeros(1, 3, 4, 4, device="meta"))
