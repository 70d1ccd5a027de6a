"""Check options, then find images, then load the model, for a run, ablation or comparison.

This module and ``plan/prepared`` raise every error that can be found before anything is written.
``plan/prepared``, and with it torch, is imported only after the images have been read, so that a
wrong path is reported at once.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.config import DEFAULTS, LARGEST_ROUNDED, VariantRequest
from hookcli.errors import RequestError
from hookcli.outside.files import full_name
from hookcli.outside.urls import HELD
from hookcli.plan.check import (
    check_file_options,
    check_kept,
    check_memory,
    check_pictures,
    check_request,
    check_run,
    check_score,
    check_values,
)
from hookcli.plan.clock import Clock
from hookcli.plan.folder import check_run_folder
from hookcli.plan.images import find_images

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.config import (
        AblationConfig,
        CompareConfig,
        ExportRequest,
        RunConfig,
        RunRequest,
        SensitivityConfig,
    )
    from hookcli.passes.runner import Side
    from hookcli.plan.images import FoundImages
    from hookcli.plan.prepared import EagerModel, Plan, PreparedAblation, PreparedRun


def prepare_run(config: RunConfig) -> PreparedRun:
    clock = Clock()
    found = _find_run(config, clock, cleans_up=True)
    if config.save_weights is not None:
        config = replace(config, save_weights=full_name(config.save_weights))
    from hookcli.plan.prepared import prepare_model, settle_run

    clock.lap("import torch")
    model = prepare_model(config.run, found, config.edited_side, config.at)
    clock.lap("load model")
    with ExitStack() as stack:
        stack.callback(model.runner.close)
        prepared = settle_run(config, model)
        stack.pop_all()
    return replace(prepared, seconds=clock.seconds)


def plan_run(config: RunConfig) -> Plan:
    found = _find_run(config, Clock(), cleans_up=False)
    from hookcli.plan.prepared import prepare_model, settle_run

    model = prepare_model(config.run, found, config.edited_side, config.at, has_weights=False)
    plan = settle_run(config, model, has_weights=False).settings.plan
    return replace(plan, skipped=tuple(model.skipped))


def _find_run(config: RunConfig, clock: Clock, *, cleans_up: bool) -> FoundImages:
    check_run(config)
    found = find_images(config.run, config.folder.out, config.machine.storage)
    clock.lap("read images")
    from hookcli.products.product import Scope  # imports torch

    scope = Scope.of(config, found.sources)
    if str(config.folder.out).startswith(HELD):
        check_memory(len(found.sources))
    check_pictures(scope)
    check_run_folder(scope, found.sources, cleans_up=cleans_up)
    return found


def prepare_ablation(config: AblationConfig, *, has_weights: bool = True) -> PreparedAblation:
    check_values(config)
    check_file_options(config.run.model)
    check_request(config.run)
    check_score(config.score, [config.score.target])
    found = find_images(config.run)
    from hookcli.plan.prepared import prepare_model, require_eager, settle_ablation

    model = prepare_model(config.run, found, has_weights=has_weights)
    return settle_ablation(config, require_eager(model, "ablate"), has_weights=has_weights)


def prepare_sensitivity(config: SensitivityConfig) -> EagerModel:
    style, run = config.style, config.run
    check_values(config)
    check_file_options(run.model)
    check_request(run)
    if style.keep is not None and style.reach is not None:
        raise RequestError("`keep` and `reach` are two ways to find a list", "choose one")
    option = "per_tensor" if style.per_tensor else "percentile"
    if style.to not in LARGEST_ROUNDED and (style.per_tensor or style.percentile):
        what = f"`{option}` is for formats with a scale, and {style.to} has none"
        raise RequestError(what, f"leave out `{option}`, or use `to='int8'`")
    if style.what == "weights" and style.percentile is not None:
        what = "`percentile` is for outputs, and only weights are rounded"
        raise RequestError(what, "leave out `percentile` or `round`")
    if style.what == "outputs" and style.per_tensor:
        what = "`per_tensor` is for weights: outputs have one scale in any case"
        raise RequestError(what, "leave out `per_tensor`")
    if run.model.dtype == style.to:
        raise RequestError(f"the model runs in {style.to} already", "leave out `dtype`")
    found = find_images(run)
    from hookcli.plan.prepared import prepare_model, require_eager

    model = prepare_model(replace(run, layers=run.layers or ("all",)), found)
    return require_eager(model, "sensitivity")


def prepare_comparison(config: CompareConfig) -> tuple[Side, Side]:
    one, two = config.run, config.other.run
    check_values(config)
    if config.blame and config.at != "output":
        raise RequestError("`blame` judges the outputs of layers", "leave out `at`")
    export = config.other.export
    if config.match == "order" and config.other.among:
        raise RequestError("batch pairs layers by their names", "leave out `match`")
    if config.match == "order" and export is None and one.model.name == two.model.name:
        raise RequestError("`match='order'` is for a file or another model", "leave out `match`")
    if export is not None and export.file is not None and one.model.is_file and one == two:
        two = replace(two, model=replace(two.model, name=str(export.file)))
        config, export = replace(config, other=replace(config.other, run=two, export=None)), None
    exports_onnx = export is not None and export.way == "onnx"
    check_file_options(one.model, two.model, exports_onnx=exports_onnx)
    if export is not None:
        _check_export(config, export)
    check_request(one)
    with _naming_against(one, two):
        check_request(two)
    one, two = _prepare_alike(one, two), _prepare_alike(two, one)
    config = replace(config, run=one, other=replace(config.other, run=two))
    found_one = found_two = find_images(one)
    if one.images != two.images:
        found_two = find_images(two)
        count_one, count_two = len(found_one.sources), len(found_two.sources)
        if (count_one, count_two) != (1, 1):
            raise RequestError(
                f"two different images are compared one with one, not {count_one} with {count_two}",
                "give one image on each side",
            )
    from hookcli.plan.prepared import list_outputs, prepare_export, prepare_repeat, prepare_side

    judges = config.judges_all
    first = VariantRequest(one.model.name, one, repeats=config.other.repeats)
    a = prepare_side(first, found_one, config.at, judges_all=judges)
    with ExitStack() as stack:
        stack.callback(a.runner.close)
        stack.enter_context(_naming_against(one, two))
        if config.other.export is not None:
            a, b = prepare_export(a, config, found_two)
        elif config.other.repeats:
            b = prepare_repeat(a, config.other)
        else:
            b = prepare_side(config.other, found_two, config.at, judges_all=judges, beside=a)
            stack.callback(b.runner.close)
        if a.runner.merges_calls or b.runner.merges_calls:
            a, b = list_outputs(a), list_outputs(b)
        stack.pop_all()
    return a, b


@contextmanager
def _naming_against(one: RunRequest, two: RunRequest) -> Iterator[None]:
    try:
        yield
    except RequestError as error:  # about B, since A has been accepted
        names = "edit|prune" + "|preprocess" * (one.model.preprocess != two.model.preprocess)
        error.message = re.sub(f"`({names})s?`", r"`against` \1", error.message)
        raise


def _check_export(config: CompareConfig, export: ExportRequest) -> None:
    asked = {
        "channels-last": config.other.channels_last,
        "threads": config.other.threads is not None,
        "`at`": config.at != "output",
        "batch": config.other.among > 0,
        "autocast": bool(config.other.autocast),
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise RequestError(f"{name} cannot be combined with {export.way}", f"leave out {name}")
    if export.keep is not None:
        check_kept(export.keep, export.way)
    if config.other.run.edits:
        raise RequestError(
            f"an edit changes a tensor while PyTorch runs, and {export.way} exports the model "
            "without it",
            "write the change into the model's own code",
        )


def _prepare_alike(request: RunRequest, other: RunRequest) -> RunRequest:
    """Return ``request``, changed so that its model file prepares images as ``other``'s model does.

    Only a request for an ONNX or torch.export file is changed, and only if ``other`` has a PyTorch
    model. Options that apply only to PyTorch models are reset.
    """
    model = request.model
    if not model.is_file or other.model.is_file:
        return request
    default, like = DEFAULTS.run.model, model.like or other.model.name
    usual = {name: getattr(default, name) for name in ("weights", "seed", "device", "arguments")}
    return replace(request, model=replace(model, **usual, like=like))
