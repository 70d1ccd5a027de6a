"""Run two models, A and B, for ``hookcli compare``, and compare their tensors layer by layer.

Both run one image at a time, B perhaps among others (``among``). hookcli keeps each tensor of A on
the host until B has run the same call, and measures each tensor of B inside the hook. After an
image, hookcli keeps only the measured distances, and the feature maps of the few calls that get a
picture.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from hookcli.comparison.among import Neighbours, Part
from hookcli.comparison.answer import compare_answers
from hookcli.comparison.diff import check_comparison, pair_ids
from hookcli.comparison.left_out import find_idle, list_left_out
from hookcli.comparison.own_errors import Blamer, run_again
from hookcli.comparison.seen_calls import SeenCalls
from hookcli.comparison.side import list_side_changes, naming, pixels_of, run_side
from hookcli.distance.answer import sum_up
from hookcli.distance.comparison import Comparison, LeftOut
from hookcli.distance.culprits import name_merged
from hookcli.distance.judge import CallPair, Judge
from hookcli.images.fit import require_image, skip_failing
from hookcli.images.prepare import prepare_like
from hookcli.passes.graph_runner import GraphRunner
from hookcli.records.calls import Uncalled
from hookcli.records.edit_effects import EditEffects
from hookcli.records.images import ImageResult, SkippedImage, describe_intensities

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from hookcli.comparison.seen_calls import SeenCall
    from hookcli.comparison.worst_calls import WorstCalls
    from hookcli.config import Match
    from hookcli.distance.answer import Answer
    from hookcli.distance.comparison import DiffRow
    from hookcli.distance.culprits import OwnError
    from hookcli.distance.metrics import TensorArray
    from hookcli.distance.tolerance import Tolerance
    from hookcli.images.prepare import PreparedImage
    from hookcli.images.read import ImageSource
    from hookcli.passes.graph import Graph
    from hookcli.passes.runner import Side
    from hookcli.records.calls import LayerInfo

    _Layers = Mapping[str, LayerInfo]  # by module path

_UNTOLD = (
    "some nodes of the file do not say which module they come from, and are compared only if their "
    "values show it: `match='order'` pairs them with layers"
)
_ONLY_OUTPUTS = (
    "the file does not say which module each node comes from, so only the model's output is "
    "compared: `match='order'` pairs the nodes with layers"
)


def compare_sides(
    a: Side,
    b: Side,
    tolerance: Tolerance,
    image_done: Callable[[int, int], None],
    *,
    keeps_images: bool = False,
    blames: bool = False,
    match: Match = "id",
    worst: WorstCalls | None = None,
) -> Comparison:
    """Run models A and B on every image, and compare them call by call.

    After each image, ``image_done`` gets the number of images so far, and of those skipped. With
    ``keeps_images``, the result also has the rows of every image. With ``blames``, it has the
    calls that cause the difference; both runners must then observe all layers.
    """
    if b.request.repeats:  # the same model must return the same values
        tolerance = replace(tolerance, rtol=tolerance.rtol or 0.0, equal_nan=True)
    judge = Judge(tolerance, (a.dtype, b.dtype), keeps_images)
    origins = a.runner.list_origins(), b.runner.list_origins()
    blamer = Blamer(a, b) if blames else None
    sides = _Sides(a, b, judge, match, blamer, worst, origins, Neighbours(b))
    before = list_skipped(a, b)
    with closing(a.runner), closing(b.runner), a.runner.ready(), b.runner.ready():
        for sources in pair_sources(a, b):
            sides.compare(*sources)
            image_done(len(sides.keys) + len(sides.skipped), len(sides.skipped))
        require_image(sides.keys, (*before, *sides.skipped))
        a.runner.edits.check_used(sides.effects.effects_a.used)
        b.runner.edits.check_used(sides.effects.effects_b.used)
    comparison = sides.make_comparison(before)
    check_comparison(comparison, judge)
    return comparison


def list_skipped(a: Side, b: Side) -> list[SkippedImage]:
    return list({image.file: image for image in (*b.skipped, *a.skipped)}.values())


def pair_sources(a: Side, b: Side) -> list[tuple[ImageSource, ImageSource]]:
    if a.request.run.images != b.request.run.images:
        return list(zip(a.sources, b.sources, strict=True))
    others = {source.key: source for source in b.sources}
    return [(source, others[source.key]) for source in a.sources if source.key in others]


@dataclass(slots=True)
class _RunEffects:
    called: dict[str, str] = field(default_factory=dict)  # as in ``observe``
    effects_a: EditEffects = field(default_factory=EditEffects)
    effects_b: EditEffects = field(default_factory=EditEffects)
    left_out: dict[str, LeftOut] = field(default_factory=dict)  # by call id

    def leave_out(
        self,
        calls: Mapping[str, SeenCall],
        common: Collection[str],
        layers: _Layers,
        graph: Graph | None = None,
        untold: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        types = {call_id: each.tensor.module_type for call_id, each in calls.items()}
        is_vague = graph is not None and (graph.untold or not graph.names_modules)
        named = graph.paths if graph is not None and is_vague else None
        reasons = {**untold, **({} if graph is None else graph.reasons)}
        for each in list_left_out(types, common, reasons):
            seen, left_out = calls[each.call_id], each
            if named and each.kind == "part" and seen.call.layer.module_path not in named:
                left_out = replace(each, reason="computed by nodes that do not say their module")
            if _lists(layers, seen):
                self.left_out[each.call_id] = left_out

    def merge(self, later: _RunEffects) -> None:
        self.called |= later.called
        self.effects_a.merge(later.effects_a)
        self.effects_b.merge(later.effects_b)
        self.left_out |= later.left_out


@dataclass(slots=True)
class _Sides:
    a: Side
    b: Side
    judge: Judge
    match: Match
    blamer: Blamer | None  # None if nobody asked for own errors
    worst: WorstCalls | None  # the tensors to draw; None without pictures
    origins: tuple[Mapping[str, tuple[str, str]], ...]  # of the tensors of both sides
    neighbours: Neighbours
    keys: list[str] = field(default_factory=list)  # of the images that were compared
    images: dict[str, ImageResult] = field(default_factory=dict)  # of both sides, by file
    skipped: list[SkippedImage] = field(default_factory=list)
    effects: _RunEffects = field(default_factory=_RunEffects)
    answers: dict[str, Answer] = field(default_factory=dict)  # by the key of the image
    _first_shape: tuple[int, ...] | None = None

    def compare(self, source_a: ImageSource, source_b: ImageSource) -> None:
        image_a = prepare_like(self.a.fitter, source_a, self._first_shape)
        image_b = prepare_like(self.b.fitter, source_b, self._first_shape)
        for image in (image_a, image_b):
            if image.pixels is None:
                self.skipped.append(SkippedImage(image.file, image.reason))
                return
        effects, before = _RunEffects(), len(self.skipped)
        on_error, several = self.a.request.run.on_error, len(self.a.sources) > 1
        with skip_failing(on_error, image_a.file, self.skipped, is_one_of_several=several):
            pairs = list(self._run(image_a, image_b, effects))
            self.effects.merge(effects)
        if len(self.skipped) > before:
            return
        self.keys.append(image_a.key)
        self.images |= {image.file: image.record(()) for image in (image_a, image_b)}
        if self._first_shape is None and image_a.pixels is not None:
            self._first_shape = tuple(image_a.pixels.shape)
        for pair, is_listed in pairs:
            self.judge.add(pair, is_hidden=not is_listed)
        if self.worst is not None:
            self.worst.finish(self.judge.rows(), image_a.key)

    def make_comparison(self, skipped_before: Sequence[SkippedImage]) -> Comparison:
        a, b, tolerance = self.a, self.b, self.judge.tolerance
        named = self.match == "order" or (a.runner.names_modules and b.runner.names_modules)
        notes = [*a.info.notes, *b.info.notes, b.runner.note, b.note]
        notes += [] if named else [_ONLY_OUTPUTS]
        untold = isinstance(b.runner, GraphRunner) and b.runner.graph.untold
        notes += [_UNTOLD] if untold and self.match == "id" else []
        notes += [f"the models saw {each.note}" for each in self.images.values() if each.note]
        notes += [text for text, _ in describe_intensities([*self.images.values()])]
        left_out = tuple(self.effects.left_out.values())
        blame = None
        if self.blamer is not None:
            reasons = ((each.call_id, each.reason) for each in left_out)
            blame = name_merged(self.blamer.blame(tolerance.rtol), reasons)
        own = {} if self.blamer is None else self.blamer.own
        self.judge.show(() if blame is None else blame.ids)
        rows = self.judge.rows()
        others = [each.other_call_id for each in rows if blame and each.call_id in blame.ids]
        return Comparison(
            a.request.name,
            b.request.name,
            tolerance,
            tuple(_add_own(rows, own)),
            changed=tuple(list_side_changes(a, b)),
            images=tuple(self.keys),
            skipped=(*skipped_before, *self.skipped),
            uncalled=tuple(
                Uncalled(layer, a.runner.explain_uncalled(layer))
                for layer in a.layers
                if layer.module_path not in self.effects.called
            ),
            left_out=left_out,
            notes=tuple(dict.fromkeys(filter(None, notes))),
            image_rows=tuple(_add_own(self.judge.image_rows(), own)),
            blame=blame,
            answer=sum_up(self.answers),
            keep=None if blame is None else b.runner.name_nodes(others),
        )

    def _run(
        self, image_a: PreparedImage, image_b: PreparedImage, effects: _RunEffects
    ) -> Iterator[tuple[CallPair, bool]]:
        a, b = self.a, self.b
        listed = [{each.module_path: each for each in side.layers} for side in (a, b)]
        graph = b.runner.graph if isinstance(b.runner, GraphRunner) else None
        size = a.runner.size_of(pixels_of(image_a))
        seen = SeenCalls(
            keeps_values=self.blamer is not None, graph=graph, size=size, origins=self.origins
        )
        if self.worst is not None:
            self.worst.start()
            seen.show = partial(self._offer, self.worst, seen, listed)
        others = SeenCalls(origins=self.origins[::-1])
        pixels = pixels_of(image_a), self.neighbours.add_to(image_b)
        part = Part(len(pixels[1]), seen.values)
        observer = seen.measure if self.match == "id" else others.keep
        observe, called = part.observing(observer), effects.called
        # Each run in ``start`` begins with the state in which A left the model.
        start = a.runner.unchanged if b.request.repeats else nullcontext
        with start():
            one = run_side(a, image_a.key, pixels[0], seen.keep, called, effects.effects_a)
            with start():
                two = run_side(b, image_b.key, pixels[1], observe, called, effects.effects_b)
            if self.match == "order":
                rerun = partial(run_again, b.runner, image_b.key, pixels[1])
                with naming(b):
                    seen.measure_by_order(others, rerun)
            if self.blamer is not None:
                with start():
                    self.blamer.add(image_a.key, pixels, seen)
        if (found := compare_answers(a.model, one, part.cut_all(one, two))) is not None:
            self.answers[image_a.key] = found
        if b.runner.merges_calls:
            told = graph if self.match == "id" else None
            effects.leave_out(seen.a, seen.partners.values(), listed[0], told, seen.untold)
        elif a.runner.merges_calls:
            effects.leave_out(seen.b, seen.partners, listed[1])
        is_eval = {each.request.run.model.mode for each in (a, b)} == {"eval"}
        for pair, is_listed in self._list_pairs(image_a.key, seen, listed):
            idle = find_idle(pair.a, pair.b) if is_eval else None
            if idle is None:
                yield pair, is_listed
            elif is_listed:
                effects.left_out[idle.call_id] = idle

    def _offer(
        self,
        worst: WorstCalls,
        seen: SeenCalls,
        listed: Sequence[_Layers],
        call_id: str,
        other: str,
        a: TensorArray,
        b: TensorArray,
    ) -> None:
        call, partner = seen.a[call_id], seen.b[other]
        if not _is_listed(listed, call, partner):
            return
        layout = call.call.layout_of(call.tensor.shape, seen.size)
        if call.tensor.shape[:1] != (1,):  # such as windows: a part is no picture of the image
            layout = replace(layout, height=0, width=0)
        pair = CallPair("", call.tensor, partner.tensor, seen.distances[call_id])
        worst.offer(self.judge.judge(pair), call.index, layout, a, b)

    def _list_pairs(
        self, image: str, seen: SeenCalls, listed: Sequence[_Layers]
    ) -> Iterator[tuple[CallPair, bool]]:
        """Yield each pair of calls, with True if the result shows the pair in any case."""
        # A pair with False serves to find culprits, and is shown only if its call is a culprit.
        # ``listed`` has the layers to show of A and of B.
        own = {call_id: f"{call_id} in B" if call_id in seen.a else call_id for call_id in seen.b}
        of_b = {seen.partners.get(call_id, key): call_id for call_id, key in own.items()}
        for call_id, other in pair_ids(tuple(seen.a), tuple(of_b)):
            one, two = seen.a.get(call_id), seen.b.get(of_b.get(other, ""))
            left_out = self._leaves_out(call_id, other, two, seen)
            is_listed = not left_out and _is_listed(listed, one, two)
            if is_listed or self.blamer is not None:
                pair = (one.tensor if one else None, two.tensor if two else None)
                distance, axes = seen.distances.get(call_id), seen.axes.get(call_id, ())
                yield CallPair(image, *pair, distance, axes), is_listed

    def _leaves_out(self, call_id: str, other: str, b: SeenCall | None, seen: SeenCalls) -> bool:
        """Return whether to leave a call out because the other side may compute it elsewhere."""
        # ``call_id`` is empty if A lacks the call, and ``other`` if B lacks it.
        if not other:
            return self.b.runner.merges_calls
        if call_id or self.a.runner.merges_calls or self.match == "order":
            return not call_id
        if seen.graph is None or b is None:
            return False
        path = b.call.layer.module_path
        return b.call.layer.is_operation or path in seen.graph.untold or seen.has_layer(path)


def _lists(layers: _Layers, seen: SeenCall | None) -> bool:
    layer = layers.get(seen.call.layer.module_path) if seen else None
    return layer is not None and seen is not None and layer.has_call(seen.call.call_index)


def _is_listed(listed: Sequence[_Layers], a: SeenCall | None, b: SeenCall | None) -> bool:
    return _lists(listed[0], a) or _lists(listed[1], b)


def _add_own(rows: Iterable[DiffRow], own: Mapping[tuple[str, str], OwnError]) -> Iterator[DiffRow]:
    for row in rows:
        found = own.get((row.image, row.call_id))
        if found is None:
            yield row
            continue
        median, worst = found.channels or (None, None)
        yield replace(row, own_rel_l2=found.own, own_channel_median=median, own_channel_worst=worst)
