"""Functional operations as layers: their names, their values, and what an edit of one changes."""

from __future__ import annotations

import re
from threading import Event, Thread

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import hookcli
from hookcli.edits.resolve import resolve_edits
from hookcli.errors import ForwardError, RequestError
from hookcli.hooks.change import Change, change
from hookcli.hooks.filter import select_layers
from hookcli.hooks.gradients import observe_gradients
from hookcli.hooks.observe import observe
from hookcli.hooks.operations import name_operation, without_fast_path
from hookcli.passes.find_operations import find_operations
from tests.small_models import build_small

SUMS = ("add", "cat")
IMAGE = torch.tensor([[[[1.0, -2.0], [3.0, -4.0]]]])


class Block(nn.Module):
    """Four spellings of an addition, an activation in place, a view and a product of nothing."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(self.conv.weight)

    def forward(self, x):
        y = self.conv(x) + 1
        y += 10
        y.add_(100)
        y = torch.add(y, 1000)
        torch.arange(3)
        return functional.relu(y.flatten(1), inplace=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return torch.cat([self.block(x), self.block(-x)], 1)


def found(model, shape=(1, 1, 2, 2)):
    return find_operations(model, (torch.zeros(shape),))


def values(model, forms, pixels, shape=(1, 1, 2, 2)):
    """The tensors that operations return, by call id, and what the model returns."""
    seen = {}
    layers = select_layers(model, forms, operations=found(model, shape))
    with (
        torch.inference_mode(),
        observe(model, layers, lambda call, t: seen.update({call.id: t.clone()})),
    ):
        output = model(pixels)
    return seen, output


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.add, "add"),
        (torch.Tensor.__iadd__, "add"),
        (torch.Tensor.__rsub__, "sub"),
        (torch.Tensor.__truediv__, "div"),
        (torch.concat, "cat"),
        (functional.relu, "relu"),
        (torch.Tensor.__getitem__, "getitem"),
        (torch.Tensor.index_add_, "index_add"),
        (torch.Tensor.T.__get__, "T"),  # type: ignore[attr-defined]
    ],
)
def test_all_spellings_of_an_operation_have_one_name(function, name):
    assert name_operation(function) == name


def test_operations_are_found_with_the_moments_of_their_calls():
    every = {each.layer.module_path: (each.moments, each.computes) for each in found(Net())}
    assert every == {
        "block/op:add": ((1, 2, 3, 4, 9, 10, 11, 12), True),
        "block/op:arange": ((5, 13), False),
        "block/op:flatten": ((6, 14), False),
        "block/op:relu": ((7, 15), True),
        "op:neg": ((8,), True),
        "op:cat": ((16,), True),
    }


def test_each_call_has_its_value_at_the_moment_it_returns():
    seen, _ = values(Net(), ["op:add", "op:cat"], IMAGE)
    additions = [sign * IMAGE + number for sign in (1, -1) for number in (1, 11, 111, 1111)]
    ids = ["block/op:add", *(f"block/op:add#{call}" for call in range(1, 8)), "op:cat"]
    assert list(seen) == ids
    for call_id, expected in zip(ids, additions, strict=False):
        assert torch.equal(seen[call_id], expected)
    both = torch.cat([(IMAGE + 1111).flatten(1), (1111 - IMAGE).flatten(1)], 1)
    assert torch.equal(seen["op:cat"], both)


@pytest.mark.parametrize(
    ("form", "calls"),
    [
        ("op:add[3]", ["block/op:add#2"]),
        ("op:add[-2:-1]", ["block/op:add#6", "block/op:add#7"]),
        ("output:block/op:add#1", ["block/op:add#1"]),
        ("b*/op:relu", ["block/op:relu", "block/op:relu#1"]),
        ("(model)/op:*", ["op:neg", "op:cat"]),
        ("op:?at,op:flatten[2]", ["block/op:flatten#1", "op:cat"]),
        ("path:block/op:arange[2]", ["block/op:arange#1"]),
    ],
)
def test_a_form_chooses_calls_of_operations_in_running_order(form, calls):
    seen, _ = values(Net(), [form], IMAGE)
    assert sorted(seen) == sorted(calls)


def test_a_wildcard_leaves_out_views_and_what_is_made_of_nothing():
    seen, _ = values(Net(), ["op:*"], IMAGE)
    assert {call_id.partition("#")[0] for call_id in seen} == {
        "block/op:add",
        "block/op:relu",
        "op:neg",
        "op:cat",
    }


def test_modules_are_chosen_by_no_form_of_operations_and_operations_by_no_other():
    net = Net()
    operations = found(net)
    every = select_layers(net, ["all"], operations=operations)
    assert [layer.module_path for layer in every] == ["", "block", "block.conv"]
    left = select_layers(net, ["op:add", "block.conv"], ["op:add[2:8]"], operations)
    assert [(layer.label, layer.chosen_calls) for layer in left] == [
        ("block.conv", ()),
        ("block/op:add", (0,)),
    ]


@pytest.mark.parametrize(
    ("form", "error", "hint"),
    [
        ("op:relu6", "no operation matches 'op:relu6'", "did you mean op:relu"),
        ("op:add[9]", "'op:add[9]' is out of range", "this model has 8: [1] to [8], or [-1]"),
        ("op:add[0]", "'op:add[0]' has the index 0", "layers are counted from 1"),
        ("op:add#8", "no operation matches 'op:add#8'", "did you mean block/op:add"),
        ("op:", "cannot read the operation 'op:'", "for example op:add"),
    ],
)
def test_a_form_that_chooses_no_operation_is_refused_with_a_hint(form, error, hint):
    net = Net()
    with pytest.raises(RequestError) as raised:
        select_layers(net, [form], operations=found(net))
    assert raised.value.message.startswith(error)
    assert hint in raised.value.hint


def test_what_torchs_own_modules_call_inside_is_not_listed_twice():
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 2, 1)), nn.ReLU(), nn.Flatten()
    ).eval()
    assert found(model) == ()


@pytest.mark.parametrize(
    ("form", "change_to", "first_half"),
    [("op:add[2]", 0.0, 1100.0), ("op:add[3]", 0.0, 1000.0), ("op:relu[1]", 3.0, 3.0)],
)
def test_the_output_of_an_operation_is_changed_in_place_too(form, change_to, first_half):
    net = Net()
    layers = select_layers(net, [form], operations=found(net))
    filled = Change("output", layers, (), lambda call, values: torch.full_like(values, change_to))
    with torch.inference_mode(), change(net, [filled]):
        output = net(IMAGE)
    assert output.flatten().tolist() == [first_half] * 4 + (1111 - IMAGE).flatten().tolist()


def test_one_watcher_does_not_take_what_another_computes_for_the_models():
    net = Net()
    every = select_layers(net, ["op:*"], operations=found(net))
    doubled = Change("output", every[:1], (), lambda call, values: values + values - values)
    seen = []

    def look(call, tensor):
        seen.append(call.id)
        torch.cat([tensor, tensor]).add_(1).relu()

    with torch.inference_mode():
        plain = net(IMAGE)
        with change(net, [doubled]), observe(net, every, look), observe(net, every, look):
            assert torch.equal(net(IMAGE), plain)
    assert len(seen) == 2 * (8 + 2 + 1 + 1)


def test_a_branch_in_another_thread_does_not_disturb_the_names():
    class Waits(nn.Module):
        def forward(self, started, goes_on):
            started.set()
            goes_on.wait(10)

    class Threaded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Waits()

        def forward(self, x):
            started, goes_on = Event(), Event()
            thread = Thread(target=self.inner, args=(started, goes_on))
            thread.start()
            started.wait(10)
            x = x + 1
            goes_on.set()
            thread.join()
            return x + 1

    assert [each.layer.module_path for each in found(Threaded())] == ["op:add"]


def test_an_error_in_an_operation_is_the_models():
    class Wrong(nn.Module):
        def forward(self, x):
            return torch.cat([x, x[:, :, :1]], 1)

    model = Wrong()
    with pytest.raises(ForwardError, match="Sizes of tensors must match"):
        found(model)


def test_no_mode_is_entered_for_modules_and_none_is_left_behind():
    net = Net()
    depth = torch._C._len_torch_function_stack
    inside = []
    with observe(net, select_layers(net, ["all"]), lambda *_: inside.append(depth())):
        net(IMAGE)
    layers = select_layers(net, ["op:neg"], operations=found(net))
    with observe(net, layers, lambda *_: None):
        assert depth() == 1
    assert set(inside) == {0}
    assert depth() == 0
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_the_fast_path_of_attention_is_restored():
    with without_fast_path():
        assert not torch.backends.mha.get_fastpath_enabled()
    with without_fast_path(unless=True):
        assert torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled()


def test_capture_finds_operations_with_an_example():
    net = Net()
    with hookcli.capture(net, layers="op:cat", keep=True, example=IMAGE) as captured:
        output = net(IMAGE)
    assert torch.equal(captured.tensors["op:cat"], output)
    with (
        pytest.raises(RequestError, match="needs an example"),
        hookcli.capture(net, edits=["op:cat:zero"]),
    ):
        pass


class Additions(TorchDispatchMode):
    """The sums and joined tensors that reach torch's dispatcher, which hookcli does not use."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.add, torch.ops.aten.add_, torch.ops.aten.cat):
            self.seen.append(output.clone())
        return output


def check_sums(model, pixels):
    """Require that every sum of a model is seen, and that its output is bit-equal."""
    with torch.inference_mode(), without_fast_path():
        plain = model(pixels.clone())
        with Additions() as additions:
            model(pixels.clone())
    seen, output = values(model, ["op:*"], pixels.clone(), pixels.shape)
    assert torch.equal(output, plain)
    sums = [t for call_id, t in seen.items() if re.search(r"op:(add|cat)\b", call_id)]
    assert len(sums) == len(additions.seen)
    assert all(map(torch.equal, sums, additions.seen))


@pytest.mark.parametrize("name", ["densenet", "swin_v2"])
def test_every_sum_of_a_model_is_seen_and_its_output_is_bit_equal(name):
    pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    check_sums(build_small(name).eval(), pixels)


class Kept(TorchFunctionMode):
    """The sums and joined tensors of a model, kept with the graph that they are part of."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "").strip("_").removeprefix("i") in SUMS:
            self.kept.append(output)
        return output


def gradients_of_sums(model, pixels):
    """The gradients of all sums as hookcli observes them, and by autograd with nothing in place."""
    layers = select_layers(model, ["re:op:(add|cat)$"], operations=found(model, pixels.shape))
    gradients = {}
    with (
        without_fast_path(),
        observe_gradients(model, layers, lambda call, g: gradients.update({call.order: g.clone()})),
    ):
        model(pixels.clone())[0, 7].backward()
    for module in model.modules():
        if hasattr(module, "inplace"):
            module.inplace = False  # so that autograd can be asked for what would be overwritten
    with without_fast_path(), Kept() as kept:
        score = model(pixels.clone())[0, 7]
    tensors = [tensor for tensor in kept.kept if tensor.requires_grad]
    wanted = torch.autograd.grad(score, tensors, allow_unused=True)
    return [gradients[order] for order in sorted(gradients)], [g for g in wanted if g is not None]


@pytest.mark.parametrize("name", ["resnet18", "swin_v2"])
def test_gradients_of_operations_are_those_of_autograd(name):
    torch.manual_seed(0)
    model = torchvision.models.resnet18() if name == "resnet18" else build_small(name)
    pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    got, wanted = gradients_of_sums(model.eval(), pixels)
    assert len(wanted) > 5
    for one, two in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-7)


def test_edits_of_views_are_refused():
    net = Net()
    with pytest.raises(RequestError, match="block/op:flatten returns a view or a copy"):
        resolve_edits(net, ["op:flatten:zero"], "output", found(net))


class Odd(nn.Module):
    """A scripted part, a sparse tensor, a function under ``vmap``, a list that grows."""

    def __init__(self):
        super().__init__()
        self.scripted = torch.jit.script(nn.ReLU())
        self.seen = []

    def forward(self, x):
        self.seen.append(len(self.seen))
        y = self.scripted(x) + len(self.seen)
        y = torch.vmap(lambda row: row * 2)(y)
        sparse = y.flatten(1).to_sparse()
        return torch.sparse.mm(sparse, torch.ones(4, 2)) + torch.zeros_like(y[0, 0])


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_odd_parts_of_a_model_do_not_disturb_the_search():
    model = Odd()
    names = {each.layer.module_type: each.computes for each in found(model)}
    assert names["add"]
    assert not names["zeros_like"]
    assert "mul" not in names
    assert model.seen == []
