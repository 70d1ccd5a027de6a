"""Choose the layers that ``sensitivity`` rounds, by what the first image shows."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hookcli.distance.tolerance import RTOL
from hookcli.errors import RequestError
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.nested import tensors_in
from hookcli.hooks.observe import observe
from hookcli.hooks.operations import without_fast_path
from hookcli.hooks.register import Hook
from hookcli.networks.modules import find_modules
from hookcli.passes.rounding import COMPUTED, Weights, explain_computed, list_weights
from hookcli.passes.second_pass import is_equal
from hookcli.records.calls import LayerInfo, Uncalled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import RoundingStyle
    from hookcli.plan.prepared import EagerModel
    from hookcli.records.calls import Call

_WEIGHT = re.compile(r"weight|\w+_proj_weight")  # the names that torch gives to weights
_NO_WEIGHT = "it has no weight of two or more axes"
# Functions of torch that read a tensor and return none
_READING = {"__setitem__", "__array__", "__dlpack__", "item", "numpy", "tolist"}
# Functions that multiply by a weight, and those of them of which it is a parameter
_PRODUCT = re.compile(
    r"(bi)?linear|\w*conv\w*|_*r?matmul_*|\w*mm|mv|einsum|tensordot|embedding"
    r"|(lstm|gru|rnn)\w*"
)
_LAYER = re.compile(r"(bi)?linear|\w*conv\w*|embedding|(lstm|gru|rnn)\w*")


class _Reads(TorchFunctionMode):
    """Sees which tensors functions compute with, and which parameters are weights of products."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.counts = Counter[int]()  # of the functions that compute with a tensor, by its ``id``
        self.multiplied = set[int]()  # the ``id`` of each parameter that a product takes
        self.computed = set[int]()  # of those, what reaches the product with other values
        self.channels = dict[int, tuple[int, ...]]()  # of those, the axes of output channels
        self.last_product: tuple[Tensor | None, str] = None, ""  # the result, and the function
        # The parameters and buffers from which alone a tensor is computed, by the tensor's ``id``
        self._sources: dict[int, tuple[Tensor, tuple[Tensor, ...]]] = {
            id(each): (each, (each,)) for each in (*module.parameters(), *module.buffers())
        }

    def __torch_function__(
        self, function: Any, _types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name, operands = getattr(function, "__name__", ""), tensors_in((args, kwargs or {}))
        given, made = {id(each) for each in operands}, tensors_in(result)
        if made or name in _READING:
            self.counts.update(given)
        known = [self._sources[each] for each in given if each in self._sources]
        if made and len(known) < len(given) and _PRODUCT.fullmatch(name):
            self.last_product = made[0], name
            del self.counts[id(made[0])]  # of a tensor that had this ``id`` before
            dims = (kwargs or {}).get("dims", args[2] if len(args) > 2 else 2)
            words = name.strip("_"), args[0] if args else None, dims
            for weight, sources in known:
                self._note(weight, sources, _find_channels(*words, operands, weight))
        elif known and len(known) == len(given) and not _LAYER.fullmatch(name):
            sources = tuple({id(each): each for _, more in known for each in more}.values())
            self._sources.update({id(each): (each, sources) for each in made})
        return result

    def _note(self, weight: Tensor, sources: Sequence[Tensor], axes: Sequence[int]) -> None:
        self.multiplied.update(map(id, sources))
        for each in sources if weight.dim() > 1 else ():
            is_view = weight.untyped_storage().data_ptr() == each.untyped_storage().data_ptr()
            after, before = (
                [*zip(one.shape, one.stride(), strict=True)] if is_view else [*one.shape]
                for one in (weight, each)
            )
            wanted = [after[axis] for axis in axes]
            found = tuple(axis for axis, one in enumerate(before) if one in wanted)
            values = [one.detach().flatten().sort().values for one in (weight, each)]
            if len(found) != len(axes) or not (is_view or torch.equal(*values)):
                self.computed.add(id(each))
            self.channels[id(each)] = found


def _find_channels(
    name: str, form: Any, dims: Any, operands: Sequence[Tensor], weight: Tensor
) -> list[int]:
    """Return the axes of a weight's output channels in a product.

    ``form`` is the equation of an einsum, and ``dims`` what a tensordot sums over.
    """
    index = next(i for i, each in enumerate(operands) if each is weight)
    is_last = index == len(operands) - 1
    if name == "einsum" and isinstance(form, str):
        given, _, made = form.replace(" ", "").partition("->")
        names = given.split(",")
        if "->" not in form:
            made = "".join(axis for axis in given if given.count(axis) == 1)
        others = "".join(names[:index] + names[index + 1 :])
        return [i for i, axis in enumerate(names[index]) if axis in made and axis not in others]
    if name == "tensordot":
        if not isinstance(dims, int):
            return [axis for axis in range(weight.dim()) if axis not in dims[is_last]]
        return [*range(dims, weight.dim())] if is_last else [*range(weight.dim() - dims)]
    if name.endswith(("matmul", "mm", "mv")):
        is_right = is_last if name != "rmatmul" else index == 0
        return [weight.dim() - (1 if is_right else 2)]
    return [1 if "transpose" in name else 0]


def run_model(model: EagerModel, pixels: Tensor) -> object:
    with torch.inference_mode(), without_fast_path():  # which hooks would turn off
        return model.runner.call(model.runner.to_device(pixels.clone()))


@dataclass(slots=True)
class Trial:
    """What the first image shows: the layers that run, and the BatchNorms that follow others."""

    reads: _Reads
    called: dict[str, str] = field(default_factory=dict)  # as in ``observe``
    speaking: set[str] = field(default_factory=set)  # layers that return floating-point numbers
    norms: dict[str, LayerInfo] = field(default_factory=dict)  # by the path of the layer before
    weights: Weights = field(default_factory=dict)
    output_bytes: int = 0

    @classmethod
    def of(cls, model: EagerModel, pixels: Tensor) -> Trial:
        module = model.runner.module
        trial, made = cls(_Reads(module)), dict[int, tuple[str, Tensor]]()
        modules, calls, pairs = find_modules(module), Counter[str](), dict[int, LayerInfo]()

        def see(call: Call, tensor: Tensor) -> None:
            path = call.layer.module_path
            if call.side == "output" and tensor.is_floating_point():
                trial.speaking.add(path)
                calls[path] += 1
                product, name = trial.reads.last_product
                # The channels of a Linear are those of a norm only without tokens.
                is_merging = "conv" in name or (tensor.dim() == 2 and name != "embedding")
                if tensor is product and is_merging:
                    made.setdefault(id(tensor), (path, tensor))  # an Identity passes one on
            elif id(tensor) in made and _is_fixed_norm(modules.get(path)):
                pairs[id(tensor)] = call.layer

        every = (*list_watchable(module), *model.runner.layers)
        layers = [*{each.module_path: each for each in every}.values()]
        with observe(module, layers, see, "both", called=trial.called), trial.reads:
            output = run_model(model, pixels)
        trial.reads.counts.update(map(id, tensors_in(output)))
        for tensor, norm in pairs.items():
            path = made[tensor][0]
            # Nothing else reads or overwrites the tensor, and neither runs a second time.
            if trial.reads.counts[tensor] == calls[path] == calls[norm.module_path] == 1:
                trial.norms[path] = norm
        runner = replace(model.runner, keeps_state=True)  # which does not repeat random numbers
        with runner.unchanged():
            again = tensors_in(run_model(replace(model, runner=runner), pixels))
        if not all(map(_is_same, tensors_in(output), again)):
            what = (
                "the model returns something else each time, which would be ranked with the layers"
            )
            hint = "`hookcli.compare` with `against=['repeat']` finds where it begins"
            raise RequestError(what, hint)
        own = [(name.rpartition(".")[2], each) for name, each in module.named_parameters()]
        trial.weights = {id(each): (0,) for name, each in own if _WEIGHT.fullmatch(name)}
        trial.weights |= {e: trial.reads.channels.get(e, (0,)) for e in trial.reads.multiplied}
        trial.output_bytes = sum(each.nbytes for each in tensors_in(output))
        return trial


def _is_same(a: Tensor, b: Tensor) -> bool:
    if a.is_cpu or a.shape != b.shape:
        return is_equal(a, b)
    # Kernels of other devices may add in any order.
    most = RTOL.get(str(a.dtype).removeprefix("torch."), 0.0) * a.nan_to_num(0, 0, 0).abs().sum()
    return bool((a - b).nan_to_num(0).abs().sum() <= most)


def choose_layers(
    model: EagerModel, style: RoundingStyle, trial: Trial, *, all_weights: bool
) -> tuple[list[LayerInfo], list[Uncalled]]:
    """Return the layers to round, and those that cannot be rounded."""
    known = {each.module_path: each for each in model.runner.layers}
    wanted = _find_weighted(model.runner.module, trial) if all_weights else [*known]
    wanted = [path for path in known if path in wanted]
    reasons = {path: _find_reason(model, known[path], style, trial) for path in wanted}
    if all_weights and "" in reasons and any(path and not why for path, why in reasons.items()):
        reasons[""] = "it uses a weight itself, but contains the other layers"
    chosen = [known[path] for path in wanted if not reasons[path]]
    if not chosen:
        what = next((f" in {known[p].label}: {why}" for p, why in reasons.items()), "")
        what = f"there is nothing to round{what or ': no layer has a weight of two or more axes'}"
        raise RequestError(what, "`hookcli.layers(MODEL)` shows what runs")
    _refuse_nested([layer.module_path for layer in chosen])
    return chosen, [Uncalled(known[path], why) for path, why in reasons.items() if why]


def _find_weighted(module: nn.Module, trial: Trial) -> set[str]:
    """Return the paths of layers that own a weight, or use the weight of a part without a call."""
    owners, unread = set[str](), set[str]()
    for path, part in find_modules(module).items():
        own = {id(p) for p in part._parameters.values() if p is not None and p.dim() > 1}
        if own := own & trial.weights.keys():
            is_read = own & trial.reads.multiplied or any(trial.reads.counts[e] for e in own)
            (owners if is_read else unread).add(re.split(r"(?:^|\.)parametrizations", path)[0])
    callers = {path: _find_caller(path, trial.called) for path in owners}
    users = {*callers.values()}
    inside = {p for p in users if any(p.startswith(f"{around}.") for around in users if around)}
    return users - inside | unread | {path for path, caller in callers.items() if not caller}


def _is_fixed_norm(module: nn.Module | None) -> bool:
    if type(module).__name__ == "FrozenBatchNorm2d":  # of torchvision's detectors
        return hasattr(module, "eps")
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    if not isinstance(module, kinds):
        return False
    return not module.training and module.running_var is not None


def _find_caller(path: str, called: dict[str, str]) -> str:
    while path and path not in called:
        path = path.rpartition(".")[0]
    return path


def _find_reason(model: EagerModel, layer: LayerInfo, style: RoundingStyle, trial: Trial) -> str:
    """Return why a layer cannot be rounded; "" if it can."""
    module = find_modules(model.runner.module).get(layer.module_path)
    if layer.module_path not in trial.called:
        return model.runner.explain_uncalled(layer).replace("this input", "the first image")
    if module and any(not isinstance(e, Hook) for e in module._forward_hooks.values()):
        return "it has forward hooks of its own, which could change what is measured"
    if layer.module_path not in trial.speaking:
        return "it ran, but returned no floating-point numbers to round"
    if module and style.what != "outputs":
        if any(id(each) in trial.reads.computed for each in module.parameters()):
            return COMPUTED
        if (why := explain_computed(module)) or list_weights(module, trial.weights):
            return why
    return _NO_WEIGHT if style.what == "weights" else ""


def _refuse_nested(paths: Sequence[str]) -> None:
    for path in paths:
        around = next((each for each in paths if path.startswith(f"{each}.") or not each), path)
        if around != path:
            what = f"{path} is inside {around or 'the model'}: a layer would be rounded twice"
            raise RequestError(what, "choose one of them with `layers` and `exclude`")
