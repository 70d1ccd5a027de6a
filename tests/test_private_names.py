"""The complete list of private names of other packages that hookcli uses; each must exist.

A name that a version of torch has lost fails here, by its name and with that version, whatever else
fails because of it.
"""

from __future__ import annotations

import ast
import atexit
import os
import re
import threading
from importlib import import_module

import torch
import torchvision
from fsspec.spec import AbstractFileSystem
from torch import nn

from tests.test_architecture import modules

OF_TORCH = (
    "module._buffers",
    "module._call_impl",
    "module._forward_hooks_always_called",
    "module._forward_hooks",
    "module._forward_pre_hooks",
    "module._forward_pre_hooks_with_kwargs",
    "module._modules",
    "module._parameters",
    "module._slow_forward",
    "module.state_dict()._metadata",
    "tensor._is_view",
    "tensor._version",
    "tensor.untyped_storage()._cdata",
    "torch._C._current_graph_task_id",
    "torch._compile._disable_dynamo",
    "torch._dynamo.eval_frame.OptimizedModule",
    "torch._dynamo.exc.TorchDynamoException",
    "torch._dynamo.reset",
    "torch._guards.detect_fake_mode",
    "torch._inductor.compile",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._ops.OpOverload",
    "torch.ops.aten._unsafe_view.default",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.ScriptObject._type",
    "torch.autograd.grad_mode._unsafe_preserve_version_counter",
    "torch.nn.modules.batchnorm._NormBase",
    "torch.ops.aten.add.Tensor._overloadpacket",
    "torch.ops.aten.add.Tensor._schema",
    "torch.ops.aten._scaled_dot_product_flash_attention",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
    "torch.utils.flop_counter._FlopCounterMode",
    "torchvision.models.ResNet18_Weights.DEFAULT.meta['_file_size']",
    "torchvision.models.ResNet18_Weights.DEFAULT.meta['_ops']",
    "torchvision.transforms._presets.ImageClassification",
)
OF_OTHERS = (
    "AbstractFileSystem._get_kwargs_from_urls",
    "AbstractFileSystem._strip_protocol",
    "atexit._run_exitfuncs",
    "hashlib._Hash",  # a type, which only type checkers know
    "os._exit",
    "threading._shutdown",
)
# of named tuples and ``sys``; a module for type checkers
OF_PYTHON = {"_fields", "_getframe", "_make", "_typeshed"}


def test_every_private_name_exists_in_the_installed_versions():
    import_module("torch.utils.flop_counter")
    known = {"torch": torch, "torchvision": torchvision, "tensor": torch.ones(1)}
    known |= {"module": nn.Linear(1, 1), "AbstractFileSystem": AbstractFileSystem}
    known |= {"atexit": atexit, "os": os, "threading": threading}
    missing = []
    for name in {*OF_TORCH, *OF_OTHERS} - {"hashlib._Hash"}:
        try:
            eval(name, known)  # noqa: S307  of the lists above
        except (AttributeError, KeyError) as error:
            missing.append(f"{name}: {error}")
    assert missing == [], f"torch {torch.__version__}, torchvision {torchvision.__version__}"


def test_every_private_name_that_hookcli_uses_is_in_a_list():
    own, used = set(), set()
    for module in modules():
        for node in module.nodes:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    own.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    own.add(name)
                case ast.Attribute(attr=name):
                    used.add(name)
                case ast.ImportFrom(module=name, names=names) if "hookcli" not in str(name):
                    used |= {*str(name).split("."), *(alias.name for alias in names)}
    listed = {part for name in (*OF_TORCH, *OF_OTHERS) for part in name.split(".")}
    private = {name for name in used if re.match(r"_(?!_)", name)}
    unlisted = private - own - listed - OF_PYTHON
    assert unlisted == set()
