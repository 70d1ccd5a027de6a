"""Find the family, channel axis and patch size of modules; explain why a module did not run."""

from __future__ import annotations

import re
from collections import Counter
from types import MethodType
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from hookcli.hooks.parameters import count_parameters, is_adapter
from hookcli.networks.modules import find_modules, list_classes
from hookcli.outside.foreign import ask
from hookcli.records.calls import ROOT_LABEL, LayerInfo
from hookcli.records.layouts import NO_TOKENS, Channels, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HOMES = ("torch.nn.modules.", "torch.ao.nn.quantized.modules.")
_QUANTIZED_LAYERS = re.compile(
    r"torch\.ao\.nn\.(intrinsic\.)?(quantized|qat)\.(dynamic\.)?modules(?!\.functional_modules)"
)
_OBSERVERS = ("torch.ao.quantization.fake_quantize", "torch.ao.quantization.observer")
_NORMS = ("batchnorm", "instancenorm", "normalization")
_FAMILY_MODULES = {
    **{home + each: each for home in _HOMES for each in ("conv", "linear", "dropout")},
    **{home + each: "norm" for home in _HOMES for each in _NORMS},
    **{f"{home}activation": "act" for home in _HOMES},
    "torch.nn.modules.pooling": "pool",
    "torchvision.ops.stochastic_depth": "dropout",
    "torchvision.ops.drop_block": "dropout",
    "timm.layers.activations": "act",
    "timm.layers.drop": "dropout",
    "transformers.activations": "act",
}
_FAMILY_TYPES = {
    "FrozenBatchNorm2d": "norm",
    "Identity": "",
    "LinearPackedParams": "",
    "MultiheadAttention": "attention",
}
_ACTIVATIONS = frozenset(
    {"celu", "clip", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leakyrelu", "mish"}
    | {"logsoftmax", "prelu", "quickgelu", "relu", "relu6", "selu", "sigmoid", "silu", "softmax"}
    | {"softplus", "softsign", "swish", "tanh", "thresholdedrelu"}
)
# The names of other operators, in lower case and without underscores, by family.
_OPERATIONS = {
    "conv": re.compile(r"(deform|fused|nhwc)?conv(olution|integer|transpose)?(\dd)?"),
    "linear": re.compile(r"(fused)?(gemm|matmul|matmulinteger|linear|addmm)"),
    "norm": re.compile(r".+norm(alization)?"),
    "pool": re.compile(r".*pool(\dd)?"),
    "attention": re.compile(r".*attention.*"),
    "dropout": re.compile(r".*dropout(\dd)?"),
}
NOT_CALLED = "the model did not call it for this input"
FAMILIES = ("conv", "linear", "norm", "act", "pool", "attention", "dropout")

_WINDOWS = ("SwapAxes", "WindowPartition")  # their outputs have windows and tokens as axes 1 and 2
_MAXVIT = "torchvision.models.maxvit"
_BY_CLASS = (Channels.FIRST, Channels.LAST)
# What a class suggests about the channels if its own ``forward`` may do something else.
_CLAIMS = {each: each.of_neighbour for each in _BY_CLASS}
_NORMS_FIRST = ("BatchNorm", "InstanceNorm", "GroupNorm", "FrozenBatchNorm", "LayerNorm2d")
_MOST_COLOURS = 4  # the maximum number of channels of an image: RGB and depth


def list_layers(model: nn.Module) -> tuple[LayerInfo, ...]:
    layers = []
    neighbour = Channels.UNKNOWN
    modules = find_modules(model)
    tokens = find_tokens(modules)
    parts: set[str] = set()
    for path, module in modules.items():
        is_part = path in parts
        inner = set(module._modules.keys()) if is_part else _list_parts(module)
        parts.update(f"{path}.{name}".lstrip(".") for name in inner)
        is_leaf = not is_part and inner.issuperset(module._modules.keys())
        claim, channels = _claim(module), _channels_of(module)
        families = {family_of(base) for base in type(module).__mro__}
        if claim in _CLAIMS:
            if claim is channels or "norm" not in families:  # a norm may be used either way
                neighbour = claim.of_neighbour
        elif is_leaf:
            if families & {"act", "dropout"} or isinstance(module, nn.Identity):  # elementwise
                channels = Channels.SAME if neighbour is Channels.UNKNOWN else neighbour
            else:
                neighbour = Channels.UNKNOWN  # after a Permute, for example, the layout may differ
        layers.append(
            LayerInfo(
                module_path=path,
                module_type=list_classes(module)[0].__name__,
                depth=path.count(".") + 1 if path else 0,
                is_leaf=is_leaf or isinstance(module, nn.MultiheadAttention),
                params=count_parameters(module),
                channels=channels,
                tokens=tokens.get(path, NO_TOKENS),
                width=_width_of(module) if claim in _CLAIMS and claim is not channels else 0,
            )
        )
    return tuple(layers)


def _list_parts(module: nn.Module) -> set[str]:
    # Parts are torch's parametrizations, adapters of peft with the layer that they adapt, packed
    # weights, and observers of a quantization. Such a layer is a leaf, and its parts are not.
    if not module._modules:
        return set()
    if is_adapter(module) or is_quantized(module):
        return set(module._modules.keys())
    homes = {name: type(child).__module__ for name, child in module._modules.items()}
    found = {name for name, home in homes.items() if home.startswith(_OBSERVERS)}
    return found | ({"parametrizations"} if is_parametrized(module) else set())


def is_quantized(module: nn.Module) -> bool:
    return any(_QUANTIZED_LAYERS.match(base.__module__) for base in type(module).__mro__)


def list_watchable(model: nn.Module) -> tuple[LayerInfo, ...]:
    """Return the modules whose hooks run: all except those inside a TorchScript module."""
    modules = find_modules(model)
    return tuple(each for each in list_layers(model) if not _is_in_script(modules, each))


def _is_in_script(modules: Mapping[str, nn.Module], layer: LayerInfo) -> bool:
    outer = [*list_above(layer.module_path)][1:]
    return any(isinstance(modules.get(path), torch.jit.ScriptModule) for path in outer)


def explain_uncalled(model: nn.Module, layer: LayerInfo) -> str:
    modules = find_modules(model)
    module = modules.get(layer.module_path)
    if layer.is_operation or module is None:
        return NOT_CALLED
    if _is_in_script(modules, layer):
        return "its hooks are passed by: it is TorchScript"
    for each in [*list_above(layer.module_path)][1:]:
        parent = type(modules.get(each)).__name__
        if "Attention" in parent and layer.params:
            return f"its weights are used inside {each or ROOT_LABEL} ({parent}) without calling it"
    if re.search(r"(^|\.)aux", layer.module_path, re.IGNORECASE) and not model.training:
        return "auxiliary head, runs only in training mode"
    if type(module).__name__ == "StochasticDepth":
        return "stochastic depth acts only in blocks with a shortcut, and this one has none"
    if isinstance(module, nn.Dropout) and not model.training:
        return "dropout does nothing in evaluation mode"
    held = [value for other in modules.values() for value in vars(other).values()]
    stored = any(isinstance(each, MethodType) and each.__self__ is module for each in held)
    if isinstance(module, torch.jit.ScriptModule) or "forward" in vars(module) or stored:
        return f"{NOT_CALLED}, or called only its forward"
    if type(module).forward is nn.Module.forward:
        return "it has no forward: it only holds parameters or modules that the model uses"
    if type(module).__call__ is not nn.Module.__call__:
        return f"{NOT_CALLED}, or its own __call__ passes the hooks by"
    return NOT_CALLED


def family_of(base: type) -> str:
    return family_of_class(base.__name__, base.__module__)


def family_of_class(name: str, python_module: str) -> str:
    if name in _FAMILY_TYPES:
        return _FAMILY_TYPES[name]
    if name.endswith(("Attention", "AttentionV2")):
        return "attention"
    return _FAMILY_MODULES.get(python_module, "")


def family_of_operation(name: str) -> str:
    plain = name.lower().replace("_", "").removeprefix("qlinear")
    if plain in _ACTIVATIONS:
        return "act"
    return next((each for each, form in _OPERATIONS.items() if form.fullmatch(plain)), "")


def _channels_of(module: nn.Module) -> Channels:
    # ``RoIAlign`` and ``RoIPool`` of ``torchvision.ops`` return (boxes, C, H, W).
    if type(module).__name__ in _WINDOWS and type(module).__module__ == _MAXVIT:
        return Channels.WINDOWS
    claim = _claim(module)
    forward = getattr(type(module), "forward", None)  # scripted modules have none
    home = getattr(forward, "__module__", None) or ""
    is_sure = home.startswith(("torch.", "torchvision.ops."))
    if is_sure and not isinstance(module, nn.MultiheadAttention):  # it returns weights, too
        return claim
    return _CLAIMS.get(claim, claim)


def _width_of(module: nn.Module) -> int:
    names = ("num_features", "num_channels", "out_channels", "out_features", "embed_dim")
    shape = ask(module, "normalized_shape")
    found = [shape[0] if type(shape) is tuple and shape else None, *(ask(module, n) for n in names)]
    return next((each for each in found if type(each) is int), 0)


def _claim(module: nn.Module) -> Channels:
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return Channels.LAST if len(module.normalized_shape) == 1 else Channels.UNKNOWN
    if isinstance(module, nn.MultiheadAttention) and module.batch_first:
        return Channels.LAST
    found = [channels_of_class(base.__name__, family_of(base)) for base in type(module).__mro__]
    return next((each for each in _BY_CLASS if each in found), Channels.UNKNOWN)


def channels_of_class(name: str, family: str) -> Channels:
    is_first = name.endswith(("RoIAlign", "RoIPool")) or name.startswith(_NORMS_FIRST)
    if is_first or family in ("conv", "pool"):
        return Channels.FIRST
    return Channels.LAST if family == "linear" or name == "Embedding" else Channels.UNKNOWN


def find_tokens(modules: Mapping[str, nn.Module]) -> dict[str, Tokens]:
    # The patch of a module is that of the smallest part of the model around it that has a patch
    # convolution, if it has only one. The numbers of extra tokens are ``num_prefix_tokens`` of timm
    # and ``num_detection_tokens`` of transformers, in the outermost module that has them.
    patches = {path: patch for path, module in modules.items() if (patch := _patch_of(module))}
    pairs = [(above, patch) for path, patch in patches.items() for above in list_above(path)]
    inside = Counter(above for above, _ in pairs)
    alone = {above: patch for above, patch in pairs if inside[above] == 1}
    before = {path: _count(module, "num_prefix_tokens") for path, module in modules.items()}
    configs = {path: ask(module, "config") for path, module in modules.items()}
    after = {path: _count(each, "num_detection_tokens") for path, each in configs.items()}
    found = {}
    for path in modules:
        around = list(list_above(path))
        nearest = next((above for above in around if inside[above]), "")
        around.reverse()
        found[path] = Tokens(
            alone.get(nearest),
            next((n for above in around if (n := before.get(above)) is not None), None),
            next((n for above in around if (n := after.get(above)) is not None), 0),
        )
    return found if any(each != NO_TOKENS for each in found.values()) else {}


def _patch_of(module: nn.Module) -> tuple[int, int] | None:
    if not isinstance(module, nn.Conv2d) or module.in_channels > _MOST_COLOURS:
        return None
    height, width = module.kernel_size
    is_cut = module.stride == module.kernel_size and module.padding in ((0, 0), "valid")
    return (height, width) if is_cut and height * width > 1 else None


def list_above(path: str) -> Iterator[str]:
    yield path
    while path:
        path = path.rpartition(".")[0]
        yield path


def _count(thing: object, name: str) -> int | None:
    number = ask(thing, name)
    return number if type(number) is int and number >= 0 else None
