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


def test_what_was_captured_is_printed_in_one_line():
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU())
    with hookcli.capture(model, layers="all") as captured:
        model(torch.rand(1, 3, 4, 4))
    assert repr(captured) == "Captured(Sequential: 3 tensors of 3 chosen layers)"


def test_figures_are_over_the_whole_batch():
    model = toys.InplaceAdd()
    with capture(model) as captured:
        model(pixel(1.0, 3.0))  # the convolution gives 3 and 9
    (record,) = captured.records
    assert record.stats.shape == (2, 1, 1, 1)
    assert (record.stats.mean, record.stats.std) == pytest.approx((6.0, 3.0))
    assert record.channels == ChannelRange((3.0,), (9.0,))


def test_convolutions_are_what_is_captured_unless_asked_otherwise():
    model = toys.Nested()
    with capture(model) as captured:
        model(pixel(1.0))
    assert ids(captured) == ["head", "block.conv", "tail"]


def test_several_forms_and_an_exclusion_are_understood():
    model = toys.Nested()
    with capture(model, ["conv", "block"], exclude="tail") as captured:
        model(pixel(1.0))
    assert ids(captured) == ["head", "block.conv", "block"]
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


def test_no_tensor_is_kept_unless_asked_for():
    model = toys.ReusedRelu()
    with capture(model, "all") as captured:
        model(pixel(1.0))
    assert captured.tensors == {}


def test_records_can_be_read_while_the_block_lasts():
    model = toys.InplaceAdd()
    with capture(model) as captured:
        model(pixel(1.0))
        assert ids(captured) == ["conv"]
        model(pixel(1.0))
        assert ids(captured) == ["conv", "conv#1"]


def test_a_scalar_and_an_empty_output_are_recorded():
    class Odd(nn.Module):
        def forward(self, x):
            return x.sum(), x[:0]

    model = Odd()
    with capture(model, "all") as captured:
        model(pixel(1.0, 2.0))
    scalar, empty = captured.records
    assert (scalar.call.id, scalar.stats.shape, scalar.stats.mean) == ("(model)[0]", (), 3.0)
    assert (empty.call.id, empty.stats.shape, empty.stats.mean) == (
        "(model)[1]",
        (0, 1, 1, 1),
        None,
    )


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


def test_captured_tensors_hold_no_graph():
    model = toys.Nested().train()
    with capture(model, "all", keep=True) as captured:
        model(pixel(1.0))
    assert not any(tensor.requires_grad for tensor in captured.tensors.values())


def test_the_mode_of_the_model_stays_as_it_is():
    model = toys.UncalledBranch().train()
    with capture(model) as captured:
        model(pixel(1.0))
    assert model.training
    assert ids(captured) == ["conv", "aux"]


def test_batch_norm_is_updated_once_a_forward_as_without_capture():
    model = nn.Sequential(toys.pointwise([1.0]), nn.BatchNorm2d(1)).train()
    with capture(model, "all", keep=True):
        model(pixel(1.0, 3.0))
    assert model[1].num_batches_tracked == 1
    assert model[1].running_mean.item() == pytest.approx(0.2)  # a tenth of the mean 2


def test_layers_that_did_not_run_are_named_with_a_reason():
    model = toys.UncalledBranch().eval()
    with capture(model) as captured:
        model(pixel(1.0))
    assert [(layer.layer.module_path, layer.reason) for layer in captured.uncalled] == [
        ("aux", "auxiliary head, runs only in training mode"),
        ("spare", "the model did not call it for this input"),
    ]


def test_weights_used_without_a_call_are_explained():
    model = toys.UnusedAttentionWeights().eval()
    with capture(model, "attention.out_proj") as captured:
        model(torch.ones(1, 3, 4))
    assert [layer.reason for layer in captured.uncalled] == [
        "its weights are used inside attention (MultiheadAttention) without calling it"
    ]


def test_before_a_forward_every_chosen_layer_is_uncalled():
    with capture(toys.Nested(), "block") as captured:
        assert [layer.layer.module_path for layer in captured.uncalled] == ["block"]


def test_a_layer_that_ran_and_returned_no_tensor_is_not_said_to_be_uncalled():
    model = toys.NoTensor()
    with capture(model, "count") as captured:
        model(pixel(1.0))
    assert captured.uncalled == ()


def test_a_form_that_matches_nothing_is_an_error_that_names_what_is_close():
    with pytest.raises(NoLayerMatchedError) as raised, capture(toys.Nested(), "bloc"):
        pass
    assert raised.value.message == "no layer matches 'bloc'"
    assert raised.value.hint == "did you mean block, Block, block.relu?"


class Half(nn.Module):
    """A function that was compiled before runs one of its modules."""

    def __init__(self):
        super().__init__()
        self.layer = nn.ReLU()
        self.run = torch.compile(self.inner, backend="eager")
        self(pixel(1.0))

    def inner(self, x):
        return self.layer(x)

    def forward(self, x):
        return self.run(x)


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
        (Half, ["layer", "(model)"]),
    ],
    ids=["torch.compile", "a part", "module.compile", "a compiled function"],
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


def test_a_module_that_is_compiled_inside_the_block_is_observed():
    model = nn.Sequential(nn.ReLU())
    with capture(model, "0") as captured:
        torch.compile(model, backend="eager")(pixel(1.0))
    assert ids(captured) == ["0"]


@pytest.mark.parametrize(
    "change",
    [torch.Tensor.to_sparse, lambda x: x.to_sparse(2), torch.Tensor.to_mkldnn],
    ids=["sparse", "hybrid", "mkldnn"],
)
def test_a_kept_tensor_of_another_layout_is_drawn(change):
    model = nn.Identity()
    with capture(model, "all", keep=True) as captured:
        model(change(torch.eye(3)[None, None]))
    assert "<img" in captured._repr_html_()


def test_an_unknown_side_is_an_error_of_the_request():
    with pytest.raises(RequestError), capture(toys.Nested(), at="inputs"):
        pass


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


def test_a_name_that_the_package_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'hookcli' has no attribute 'capure'"):
        _ = hookcli.capure  # type: ignore[attr-defined]


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


def test_an_output_that_holds_itself_is_captured_once():
    class Knot(nn.Module):
        def forward(self, x):
            knot = [x]
            knot.append(knot)
            return knot

    model = nn.Sequential(Knot())
    with capture(model, "Knot") as captured:
        model(pixel(4.0))
    assert [(r.call.id, r.stats.mean) for r in captured.records] == [("0[0]", 4.0)]


def test_a_model_on_the_meta_device_has_no_values_to_show():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1, device="meta"))
    with (
        hookcli.capture(model) as _,
        pytest.raises(hookcli.HookcliError, match="on the meta device, which holds no values"),
    ):
        model(torch.zeros(1, 3, 4, 4, device="meta"))


class NormOfMaps(nn.LayerNorm):
    """Works on NCHW, as the norms of ConvNeXt do."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@pytest.mark.parametrize(("channels", "example"), [(5, None), (6, torch.rand(1, 3, 6, 6))])
def test_a_norm_of_maps_has_channels_first_if_its_width_or_an_example_shows_it(channels, example):
    model = nn.Sequential(nn.Conv2d(3, channels, 1), NormOfMaps(channels))
    with hookcli.capture(model, layers="1", example=example) as captured:
        model(torch.rand(1, 3, 6, 6))
    (record,) = captured.records
    assert record.layout.name == "NCHW"


def test_a_norm_of_maps_as_wide_as_it_has_channels_has_no_layout_without_an_example():
    model = nn.Sequential(nn.Conv2d(3, 6, 1), NormOfMaps(6))
    with hookcli.capture(model, layers="1") as captured:
        model(torch.rand(1, 3, 6, 6))
    assert captured.records[0].layout.channel_axis is None
