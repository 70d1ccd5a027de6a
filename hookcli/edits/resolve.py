"""Edits and pruning, from what was asked to what is done to a model while it runs."""

from __future__ import annotations

import fnmatch
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import prune

from hookcli.activations.stats import name_not_finite
from hookcli.edits.grammar import read_edit
from hookcli.edits.operations import apply_edit, check_channels
from hookcli.edits.prune_grammar import Prune, read_prune
from hookcli.errors import NoLayerMatchedError, RequestError
from hookcli.foreign import ask
from hookcli.hooks.change import Change
from hookcli.hooks.filter import select_layers
from hookcli.hooks.gradients import PRUNED
from hookcli.records.layouts import resolve_layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from hookcli.edits.grammar import Edit, Side
    from hookcli.records.calls import Call

_METHODS = {"l1": prune.L1Unstructured, "random": prune.RandomUnstructured}
_TRANSPOSED = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)


@dataclass(slots=True)
class Edits:
    """What is changed in the forwards and backwards of a model.

    Attributes:
        changes: in their order.
        pruned: the modules that were pruned, by path.
        parameters: by the id of a pruned module, the names of its own parameters, in their order.
        size: height and width of what the layers see, by which channels are told from places.
        images: of the batch that runs; None where the leading axis is always the images'.
        unused: texts of the edits that have not been made yet.
        made: by ``NaN`` and ``Inf``, the edit that made the first one of finite numbers.
    """

    changes: tuple[Change, ...] = ()
    pruned: dict[str, nn.Module] = field(default_factory=dict)
    parameters: dict[int, tuple[str, ...]] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    images: int | None = None
    unused: set[str] = field(default_factory=set)
    made: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.changes or self.pruned)

    def check_used(self) -> None:
        """See that every edit was made in the forwards and backwards so far.

        Raises:
            RequestError: one was not, since none of its layers ran or got a gradient.
        """
        for text in sorted(self.unused):
            raise RequestError(
                f"--edit {text!r} changed nothing: none of its layers ran or got a gradient",
                "hookcli layers MODEL shows what runs",
            )

    @contextmanager
    def forgotten_on_error(self) -> Iterator[None]:
        """What was edited and made in the block does not count if it ends with an error."""
        unused, made, is_done = set(self.unused), dict(self.made), False
        try:
            yield
            is_done = True
        finally:
            if not is_done:
                self.unused, self.made = unused, made

    @contextmanager
    def without_pruning(self) -> Iterator[None]:
        """The model as it was before it was pruned, while the block lasts."""
        masks = [(module, _mask(module)) for module in self.pruned.values()]
        try:
            for module, mask in masks:
                module.weight_mask = torch.ones_like(mask)
            yield
        finally:
            for module, mask in masks:
                module.weight_mask = mask

    def recompute_weights(self) -> None:
        """Make the pruned weights anew: modules that are not called would keep what they had."""
        for module in self.pruned.values():
            module.weight = module.get_parameter(f"weight{PRUNED}") * _mask(module)

    @contextmanager
    def restored_on_exit(self) -> Iterator[None]:
        """Give the pruned modules their weights back when the block ends."""
        try:
            yield
        finally:
            self._undo()

    def _undo(self) -> None:
        for module in self.pruned.values():
            known = module._forward_pre_hooks
            for key in [
                k for k, hook in known.items() if isinstance(hook, prune.BasePruningMethod)
            ]:
                del known[key]
            weight = module._parameters.pop(f"weight{PRUNED}")
            del module._buffers["weight_mask"], module.weight
            module.register_parameter("weight", weight)
            for name in self.parameters[id(module)]:  # in the order that they had
                module._parameters[name] = module._parameters.pop(name)
        self.pruned = {}

    @property
    def sparsities(self) -> dict[str, float]:
        """Share of pruned values in the weight of each pruned module, by its path."""
        return {
            path: 1 - float(_mask(module).double().mean()) for path, module in self.pruned.items()
        }

    def make_permanent(self, model: nn.Module) -> dict[str, Tensor]:
        """The state dict of ``model`` with the pruned values as zeros, as if it had never been pruned."""
        state = model.state_dict()
        pruned = set(self.pruned.values())
        for path, module in model.named_modules(remove_duplicate=False):
            if module in pruned:
                name = f"{path}.weight" if path else "weight"
                weight = state.pop(f"{name}_orig")
                state[name] = weight * state.pop(f"{name}_mask")
        return state


def plan_edits(
    model: nn.Module,
    texts: Sequence[str],
    default_side: Side,
    prunes: Sequence[str] = (),
    seed: int = 0,
) -> Edits:
    """The edits, held against the model, which is pruned at once.

    Raises:
        RequestError: an edit cannot be read, matches nothing, or names channels that do not exist.
    """
    edits = Edits()
    for text in prunes:
        _prune(model, read_prune(text), edits, seed)
    edits.unused = set(texts)
    edits.changes = tuple(_plan(model, read_edit(text, default_side), edits) for text in texts)
    return edits


def check_edits(
    model: nn.Module, texts: Sequence[str], default_side: Side, prunes: Sequence[str]
) -> None:
    """See that edits and prunes name what a model has; its weights are not looked at.

    Raises:
        RequestError: one does not.
    """
    for text in prunes:
        select_layers(model, [read_prune(text).layers])
    plan_edits(model, texts, default_side)


def _plan(model: nn.Module, edit: Edit, edits: Edits) -> Change:
    apply = partial(_apply, edit, edits)
    if edit.side == "param":
        names = {name.removesuffix(PRUNED): name for name, _ in model.named_parameters()}
        matched = tuple(names[name] for name in fnmatch.filter(names, edit.layers))
        if not matched:
            raise NoLayerMatchedError(edit.layers, names, "parameter")
        return Change(edit.side, (), matched, apply)
    chosen = select_layers(model, [edit.layers])
    for layer in chosen if edit.side.endswith("output") else ():
        module = model.get_submodule(layer.module_path)
        count = ask(module, "out_channels", ask(module, "num_features"))
        if isinstance(count, int):
            check_channels(edit, count, layer.label)
    return Change(edit.side, chosen, (), apply)


def _apply(edit: Edit, edits: Edits, call: Call | None, values: Tensor) -> Tensor:
    edits.unused.discard(edit.text)
    changed = _edited(edit, edits, call, values)
    if edit.verb in ("set", "scale") and not name_not_finite(values):
        kinds = [kind for kind in ("NaN", "Inf") if kind in name_not_finite(changed)]
        edits.made = dict.fromkeys(kinds, edit.text) | edits.made
    return changed


def _edited(edit: Edit, edits: Edits, call: Call | None, values: Tensor) -> Tensor:
    if call is None:
        return apply_edit(edit, values, None, per_image=False)
    axis = resolve_layout(tuple(values.shape), call.layer.channels, edits.size).channel_axis
    if edit.channels is not None and axis is not None:
        check_channels(edit, values.shape[axis], call.id)
    per_image = edits.images is None or values.shape[:1] == (edits.images,)
    return apply_edit(edit, values, axis, per_image=per_image)


def _prune(model: nn.Module, asked: Prune, edits: Edits, seed: int) -> None:
    """Prune the weights that are asked for, by ``torch.nn.utils.prune``."""
    chosen = select_layers(model, [asked.layers])
    found = {layer.module_path: model.get_submodule(layer.module_path) for layer in chosen}
    able = {
        path: module
        for path, module in found.items()
        if "weight" in dict(module.named_parameters(recurse=False)) or path in edits.pruned
    }
    if not able:
        raise RequestError(
            f"--prune {asked.text!r}: none of its layers has a weight of its own",
            "prune conv or linear",
        )
    for module in able.values():
        edits.parameters.setdefault(id(module), tuple(module._parameters))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        _prune_modules(able, asked, edits)


def _prune_modules(able: dict[str, nn.Module], asked: Prune, edits: Edits) -> None:
    for path, module in able.items():
        if asked.method == "ln":
            weight: Any = module.weight
            if weight.dim() < 2:
                raise RequestError(
                    f"--prune {asked.text!r}: the weight of {path} has one axis", "use l1"
                )
            axis = int(isinstance(module, _TRANSPOSED))  # of the output channels
            prune.ln_structured(module, "weight", asked.amount, n=2, dim=axis)  # type: ignore[no-untyped-call]
        else:
            _METHODS[asked.method].apply(module, "weight", asked.amount)  # type: ignore[no-untyped-call]
        edits.pruned[path] = module


def _mask(module: nn.Module) -> Tensor:
    return module.get_buffer("weight_mask")
