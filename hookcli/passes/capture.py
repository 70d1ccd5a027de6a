"""Provide ``hookcli.capture``, which sets hooks in a notebook, a script or a training loop."""

from __future__ import annotations

import itertools
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hookcli.activations.observation import Observation, read_records
from hookcli.activations.stats import reduce_rows
from hookcli.config import DEFAULTS
from hookcli.edits.resolve import list_edited_forms, resolve_edits
from hookcli.errors import RequestError
from hookcli.hooks.change import change, change_input_gradients
from hookcli.hooks.filter import name_operations, select_layers
from hookcli.hooks.gradients import observe_gradients
from hookcli.hooks.layers import explain_uncalled
from hookcli.hooks.nested import to_dense
from hookcli.hooks.observe import observe
from hookcli.networks.modules import note_compiled, run_eagerly, unwrap
from hookcli.passes.find_operations import find_operations, infer_from
from hookcli.records.calls import Uncalled
from hookcli.records.edit_effects import EditEffects
from hookcli.records.layouts import UNKNOWN
from hookcli.records.statistics import figures_of, layer_cells
from hookcli.records.text import and_more, count, shape_text
from hookcli.render.report.notebook import MOST_NOTES, MOST_PICTURES, MOST_ROWS, render_layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from hookcli.edits.grammar import Side
    from hookcli.hooks.gradients import Gradients
    from hookcli.hooks.operations import FoundOperation
    from hookcli.records.calls import Call, LayerInfo
    from hookcli.records.layer_records import LayerRecord


@dataclass(slots=True, repr=False)
class Captured:
    """Holds the records and tensors of a ``hookcli.capture`` block.

    Example:
        >>> with hookcli.capture(model, layers="conv", keep=True) as captured:
        ...     model(x)
        >>> captured.tensors["conv1"].shape

    Attributes:
        layers: the layers that the arguments of ``hookcli.capture`` chose.
        tensors: detached copies of the observed tensors, by call id (such as ``conv1#1``), on the
            devices of the originals; empty without ``keep=True``.
    """

    layers: tuple[LayerInfo, ...]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    _model: nn.Module | None = None
    _called: dict[str, str] = field(default_factory=dict)  # as in ``hooks.observe``
    _seen: list[Observation] = field(default_factory=list)
    _gradients: Gradients | None = None
    _keeps: bool = False  # whether to keep copies of tensors

    @property
    def records(self) -> tuple[LayerRecord, ...]:
        """One record per observed tensor, in running order; its figures cover the whole batch."""
        return read_records(self._seen, [""])

    @property
    def absent(self) -> dict[str, str]:
        """Why gradients were not computed, by call id; empty without ``gradients=True``."""
        missing = () if self._gradients is None else self._gradients.missing
        return {each.call.id: each.reason for each in missing}

    @property
    def uncalled(self) -> tuple[Uncalled, ...]:
        """The chosen layers that did not run, each with the reason, as far as hookcli knows it."""
        model = self._model
        return tuple(
            Uncalled(layer, explain_uncalled(model, layer))
            for layer in self.layers
            if model is not None and layer.module_path not in self._called
        )

    def log_to(self, writer: Any, step: int, prefix: str = "activations") -> None:
        """Write the figures of this block to TensorBoard's ``SummaryWriter`` or a similar writer.

        For an activation, hookcli writes each statistic except ``min`` and ``max``; for a gradient,
        ``norm``, ``max_abs``, ``nan_count`` and ``inf_count``. With ``keep=True``, each tensor with
        height and width also gets a picture of up to 16 channels of the batch's first image.

        Example:
            >>> with hookcli.capture(model, layers="conv", gradients=True) as captured:
            ...     loss(model(x), y).backward()
            >>> captured.log_to(writer, step)

        Args:
            writer: has the methods ``add_scalar(tag, value, step)`` and, for pictures,
                ``add_image(tag, array, step)``, where ``array`` is (3, H, W) in uint8.
            step: the number of the training step.
            prefix: the first part of every tag: ``activations/layer1.0.conv1/mean``.
        """
        from hookcli.passes.training_log import write_log  # imported late: loads code that draws

        write_log(writer, step, prefix, records=self.records, tensors=self.tensors)

    def __repr__(self) -> str:
        return f"Captured({self._describe()})"

    def _describe(self) -> str:
        model = "" if self._model is None else f"{type(self._model).__name__}: "
        layers = count(len(self.layers), "chosen layer")
        return f"{model}{count(len(self.records), 'tensor')} of {layers}"

    def _repr_html_(self) -> str:
        records, uncalled = self.records, self.uncalled
        notes = [f"{each.layer.label} did not run: {each.reason}" for each in uncalled][:MOST_NOTES]
        if len(uncalled) > MOST_NOTES:
            notes.append(and_more(len(uncalled) - MOST_NOTES, "and {} more that did not run"))
        rows = [_cells(record) for record in records[:MOST_ROWS]]
        return render_layers(
            self._describe(), notes, rows, total=len(records), pictures=self._draw()
        )

    def _draw(self) -> Iterator[tuple[str, bytes]]:
        if not self.tensors:
            return
        from hookcli.passes.training_log import draw_kept
        from hookcli.render.draw.canvas import to_png

        drawn = draw_kept(self.records, self.tensors)
        for call_id, image in itertools.islice(drawn, MOST_PICTURES):
            yield call_id, to_png(image)

    def _observe(self, call: Call, tensor: Tensor) -> None:
        dense = to_dense(tensor)
        layout = UNKNOWN if call.side == "param" else call.layout_of(tuple(dense.shape))
        axis = None if layout.channel_axis is None else layout.channel_axis + 1
        reduced = reduce_rows(dense.unsqueeze(0), axis)
        self._seen.append(
            Observation(call, layout, tuple(tensor.shape), dtype=tensor.dtype, reduced=reduced)
        )
        if self._keeps:
            self.tensors[call.id] = tensor.detach().clone()


def _cells(record: LayerRecord) -> dict[str, str]:
    call, shape = record.call, shape_text(record.stats.shape)
    return layer_cells(call.id, call.layer.module_type, shape, figures_of(record.stats))


@contextmanager
def capture(
    model: nn.Module,
    layers: str | Sequence[str] = DEFAULTS.run.layers,
    *,
    exclude: str | Sequence[str] = (),
    at: str = DEFAULTS.at,
    keep: bool = False,
    gradients: bool = False,
    edits: Sequence[str] = (),
    example: object = None,
) -> Iterator[Captured]:
    """Observe chosen layers of any ``nn.Module`` while the block lasts.

    Example:
        >>> with hookcli.capture(model, layers="conv", gradients=True) as captured:
        ...     loss(model(x), y).backward()
        >>> {record.call.id: record.stats.norm for record in captured.records}

    hookcli counts the calls of a layer from the beginning of the block: if ``conv1`` is called once
    per forward pass, the call in the second forward pass has the id ``conv1#1``. A pass that
    activation checkpointing repeats counts as another pass. In a training loop, put the block
    inside the loop. The figures of a record cover the whole tensor, including the batch axis. When
    the block ends, even with an error, hookcli removes all its hooks from the model.

    Args:
        model: the model. Parts that torch.compile made run in eager mode while the block lasts.
        layers: one or more filters for the layers to observe, such as ``conv`` or ``layer1.*``.
        exclude: one or more filters for the layers to leave out.
        at: what to observe of each layer: ``output``, ``input`` or ``both``.
        keep: whether to keep a copy of every tensor, made when the hook runs.
        gradients: whether to also observe, in every backward pass inside the block, the gradients
            of the layers' inputs, outputs and parameters. Their records have the sides
            ``grad_input``, ``grad_output`` and ``param``.
        edits: edits to make, in this order, in the syntax of ``--edit``. An edit that names no side
            changes outputs; with ``gradients=True``, it changes the gradients of outputs.
        example: an input of the model, or a tuple of its positional arguments, with which hookcli
            runs the model before the block begins. You need it to choose functional operations
            (``op:add``). It also shows which axis holds the channels of a layer whose type does
            not show it; without an example, hookcli reads the axis from shapes, or says nothing
            about channels.

    Raises:
        RequestError: ``at`` is none of the three words, no layer matches, operations are chosen
            without an example, or an edit is impossible or changed nothing.
    """
    wanted = (layers,) if isinstance(layers, str) else tuple(layers)
    unwanted = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    operations: tuple[FoundOperation, ...] = ()
    arguments = example if isinstance(example, tuple) else (example,)
    if name_operations(wanted, unwanted, list_edited_forms(edits)):
        if example is None:
            what = "operations are found in a forward pass, which needs an example"
            raise RequestError(what, "capture(model, layers='op:add', example=images)")
        operations = find_operations(unwrap(model), arguments)
    chosen = select_layers(model, wanted, unwanted, operations)
    side: Side = "grad_output" if gradients else "output"
    resolved = resolve_edits(model, edits, side, operations)
    if example is not None:
        infer = partial(infer_from, unwrap(model), arguments)
        chosen = infer(chosen)
        edited = (replace(each, layers=infer(each.layers)) for each in resolved.resolved)
        resolved = replace(resolved, resolved=tuple(edited))
    effects = EditEffects()
    changes = resolved.changes(effects)
    captured = Captured(chosen, _model=model, _keeps=keep)
    if note := note_compiled(model):
        warnings.warn(note.partition(";")[0], stacklevel=3)
    with run_eagerly(), ExitStack() as stack:
        stack.enter_context(change(model, changes))
        observing = observe(model, chosen, captured._observe, at=at, called=captured._called)
        stack.enter_context(observing)
        if gradients:
            observed = observe_gradients(model, chosen, captured._observe)
            captured._gradients = stack.enter_context(observed)
        stack.enter_context(change_input_gradients(model, changes))
        yield captured
    resolved.check_used(effects.used)
