"""Models with one planted fault each, for ``tools/blame.py``.

``healthy`` makes a model, and ``faulty`` the same model with a fault.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hookcli.networks.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODELS = (
    "resnet18",
    "mobilenet_v3_small",
    "densenet121",
    "vit_b_16",
    "swin_t",
    "convnext_tiny",
    "efficientnet_b0",
    "regnet_y_400mf",
    "googlenet",
    "lraspp_mobilenet_v3_large",
)


def healthy(name: str) -> Any:
    """Return a model with random weights, and BatchNorm statistics as if it had been trained."""
    torch.manual_seed(0)
    options: dict[str, object] = {"weights": None}
    if name == "lraspp_mobilenet_v3_large":
        options["weights_backbone"] = None
    if name == "googlenet":
        options |= {"aux_logits": False, "init_weights": False}
    model: Any = torchvision.models.get_model(name, **options)
    for module in model.modules():
        if type(module).__name__ == "BatchNorm2d":
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.1)
        if isinstance(module, nn.Linear) and not module.weight.any():  # the head of a ViT
            nn.init.normal_(module.weight, std=0.02)
        if hasattr(module, "layer_scale"):
            nn.init.uniform_(module.layer_scale, 0.5, 1.5)
    return model.eval()


def faulty(name: str, fault: str, site: str = "0") -> Any:
    """Return the model ``name`` with a fault in module ``site`` (modulo their number) of the sites.

    The attribute ``planted`` has the paths of the layers that compute other values.
    """
    model = healthy(name)
    sites = list_sites(model, fault)
    path = sites[int(site) % len(sites)]
    with torch.no_grad():
        model.planted = FAULTS[fault][1](path, model.get_submodule(path))
    return model


def list_sites(model: nn.Module, fault: str) -> list[str]:
    """Return the paths of the modules in which ``fault`` is possible."""
    fits = FAULTS[fault][0]
    return [path for path, module in model.named_modules() if fits(module)]


def _is_spatial(module: Any) -> bool:
    return isinstance(module, nn.Conv2d) and min(module.kernel_size) > 1


def _epsilon(path: str, module: Any) -> list[str]:
    module.eps = module.eps * 100
    return [path]


def _padding(path: str, module: Any) -> list[str]:
    module.padding_mode = "circular"
    module._reversed_padding_repeated_twice = [
        each for pad in reversed(module.padding) for each in (pad, pad)
    ]
    return [path]


def _filter(path: str, module: Any) -> list[str]:
    module.weight[len(module.weight) // 2] *= 1.05
    return [path]


def _bias(path: str, module: Any) -> list[str]:
    module.bias.zero_()
    return [path]


def _tanh(path: str, module: Any) -> list[str]:
    module.approximate = "tanh"
    return [path]


def _kernel_axes(path: str, module: Any) -> list[str]:
    module.weight.copy_(module.weight.transpose(2, 3).clone())
    return [path]


def _permute(path: str, module: Any) -> list[str]:
    dims = list(module.dims)
    dims[-1], dims[-2] = dims[-2], dims[-1]
    if sorted(module.dims[1:]) == [1, 2, 3]:
        dims = list(module.dims)
        dims[1], dims[2] = dims[2], dims[1]
    module.dims = dims
    return [path]


def _int8(path: str, module: Any) -> list[str]:
    scale = module.weight.abs().max() / 127
    module.weight.copy_((module.weight / scale).round() * scale)
    return [path]


def _statistics(path: str, module: Any) -> list[str]:
    module.running_var += 0.01
    return [path]


def _activation(path: str, module: Any) -> list[str]:
    other = {
        nn.ReLU: functional.leaky_relu,
        nn.Hardswish: functional.silu,
        nn.SiLU: functional.mish,
    }
    wrong: Any = other[type(module)]
    module.forward = types.MethodType(lambda _self, x: wrong(x), module)
    return [path]


def _operation(path: str, module: Any) -> list[str]:
    module.forward = types.MethodType(_WRONG[type(module).__name__], module)
    return ["/".join(filter(None, (path, name))) for name in _NAMES[type(module).__name__]]


def _basic(self: Any, x: Tensor) -> Any:
    out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
    identity = x if self.downsample is None else self.downsample(x)
    return self.relu(out - identity)


def _excite(self: Any, x: Tensor) -> Any:
    return self._scale(x) + x


def _inverted(self: Any, x: Tensor) -> Any:
    result = self.block(x)
    return result * x if self.use_res_connect else result


def _mbconv(self: Any, x: Tensor) -> Any:
    result = self.block(x)
    return self.stochastic_depth(result) - x if self.use_res_connect else result


def _encoder(self: Any, x: Tensor) -> Any:
    attended, _ = self.self_attention(*[self.ln_1(x)] * 3, need_weights=False)
    attended = self.dropout(attended) + x
    return self.mlp(self.ln_2(attended)) * attended


def _convnext(self: Any, x: Tensor) -> Any:
    result = self.layer_scale * self.block(x)
    return self.stochastic_depth(result) - x


def _regnet(self: Any, x: Tensor) -> Any:
    identity = x if self.proj is None else self.proj(x)
    return self.activation(identity - self.f(x))


def _inception(self: Any, x: Tensor) -> Any:
    return torch.cat([self.branch2(x), self.branch1(x), self.branch3(x), self.branch4(x)], 1)


def _dense(self: Any, x: Any) -> Any:
    features = [x] if isinstance(x, Tensor) else list(x)
    out = self.conv1(self.relu1(self.norm1(torch.cat(features[::-1], 1))))
    return self.conv2(self.relu2(self.norm2(out)))


def _swin(self: Any, x: Tensor) -> Any:
    x = x + self.stochastic_depth(self.attn(self.norm1(x)))
    return x - self.stochastic_depth(self.mlp(self.norm2(x)))


def _head(self: Any, inputs: dict[str, Tensor]) -> Any:
    low, high = inputs["low"], inputs["high"]
    x = self.cbr(high) * self.scale(high)
    x = functional.interpolate(x, size=low.shape[-2:], mode="bilinear", align_corners=True)
    return self.low_classifier(low) + self.high_classifier(x)


def _upsample(self: Any, x: Tensor) -> dict[str, Tensor]:
    out = self.classifier(self.backbone(x))
    size = x.shape[-2:]
    return {"out": functional.interpolate(out, size, mode="bilinear", align_corners=True)}


def _corners(path: str, module: Any) -> list[str]:
    wrong = _head if path else _upsample
    module.forward = types.MethodType(wrong, module)
    return [f"{path}/op:interpolate" if path else "op:interpolate"]


_WRONG: dict[str, Callable[..., object]] = {
    "BasicBlock": _basic,
    "SqueezeExcitation": _excite,
    "InvertedResidual": _inverted,
    "MBConv": _mbconv,
    "EncoderBlock": _encoder,
    "CNBlock": _convnext,
    "ResBottleneckBlock": _regnet,
    "Inception": _inception,
    "_DenseLayer": _dense,
    "SwinTransformerBlock": _swin,
}
_NAMES: dict[str, tuple[str, ...]] = {
    "BasicBlock": ("op:sub", "op:add"),
    "SqueezeExcitation": ("op:add", "op:mul"),
    "InvertedResidual": ("op:mul", "op:add"),
    "MBConv": ("op:sub", "op:add"),
    "EncoderBlock": ("op:mul", "op:add#1"),
    "CNBlock": ("op:sub", "op:add"),
    "ResBottleneckBlock": ("op:sub", "op:add"),
    "Inception": ("op:cat",),
    "_DenseLayer": ("op:cat",),
    "SwinTransformerBlock": ("op:sub", "op:add#1"),
}


def _has_residual(module: Any) -> Any:
    name = type(module).__name__
    if name == "_DenseLayer":
        return module.norm1.num_features > 64
    is_other = name == "InvertedResidual" and not hasattr(module, "block")  # of ShuffleNet
    return name in _WRONG and getattr(module, "use_res_connect", not is_other)


FAULTS: dict[str, tuple[Callable[[Any], bool], Callable[[str, Any], Sequence[str]]]] = {
    "epsilon": (lambda m: isinstance(m, (nn.BatchNorm2d, nn.LayerNorm)), _epsilon),
    "padding mode": (lambda m: _is_spatial(m) and max(m.padding) > 0, _padding),
    "one filter times 1.05": (lambda m: isinstance(m, (nn.Conv2d, nn.Linear)), _filter),
    "no bias": (lambda m: isinstance(m, nn.Linear) and m.bias is not None, _bias),
    "tanh GELU": (lambda m: isinstance(m, nn.GELU), _tanh),
    "swapped axes of a kernel": (_is_spatial, _kernel_axes),
    "swapped axes of a permutation": (lambda m: hasattr(m, "dims"), _permute),
    "one int8 layer": (lambda m: isinstance(m, (nn.Conv2d, nn.Linear)), _int8),
    "running variance": (lambda m: isinstance(m, nn.BatchNorm2d), _statistics),
    "another activation": (lambda m: type(m) in (nn.ReLU, nn.Hardswish, nn.SiLU), _activation),
    "align_corners": (lambda m: type(m).__name__ in ("LRASPP", "LRASPPHead"), _corners),
    "wrong operation": (_has_residual, _operation),
}
