"""Where the tokens of an attention lie on the image, found by following them from the pixels on.

Models cut images into windows, shift them, pool keys, and put class tokens in front, each in its
own way. So no model is known by name here. Beside each tensor that is computed from the pixels goes
a *trail*: for every value, the pixel that it stands at. A function that moves values (``reshape``,
``roll``, ``cat``) is called once more with the trail, which moves it the same way. A function that
computes values keeps their places. The product of two tensors, such as queries and keys, has two
trails, that of its rows and that of its columns; a softmax over such a product is an attention, and
no other softmax is.

What is computed from parameters and buffers alone was learned, and stands for no part of the image.
What comes from code that shows no function of torch, such as a scripted one, could not be followed.

Nothing here changes a tensor of the model.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from hookcli.activations.attention import MULTI_HEAD_ARGUMENTS
from hookcli.hooks.operations import name_operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence

NO_PLACE, PADDING = -1, -2

# What a trail holds, for each value of a tensor: the index of a pixel counted from 1, or one of
# these: cells that ``pad`` put beside the image, tokens that are not computed from one part of it,
# tensors whose places could not be followed, and weights by which channels are mixed.
_OUTSIDE, _LEARNED, _LOST, _WEIGHTS = 0, -1, -2, -3

_JOINING = {"cat", "concat", "concatenate", "hstack", "stack", "vstack"}
_MOVING = {
    "__getitem__", "broadcast_to", "chunk", "expand", "expand_as", "flatten", "flip", "fliplr",
    "flipud", "gather", "index_select", "moveaxis", "movedim", "mT", "narrow", "permute",
    "pixel_unshuffle", "ravel", "repeat", "repeat_interleave", "reshape", "roll", "rot90", "select",
    "split", "squeeze", "swapaxes", "swapdims", "T", "take_along_dim", "tensor_split", "tile",
    "transpose", "unbind", "unflatten", "unfold", "unsafe_chunk", "unsafe_split", "unsqueeze",
    "view",
}  # fmt: skip
_REDUCING = {"amax", "amin", "mean", "sum"}
# The names of both factors of a product, where they are not given by their places.
_FACTORS = {
    "baddbmm": ("batch1", "batch2"), "bmm": ("input", "mat2"), "einsum": ("", ""),
    "matmul": ("input", "other"), "mm": ("input", "mat2"),
}  # fmt: skip
_PROJECTING = {"conv1d", "conv2d", "linear"}
_MIXERS = {"add", "addcmul", "lerp", "sub"}
_CHOOSING = {"__getitem__", "gather", "index_select", "repeat_interleave", "take_along_dim"}
_REPLACING = {"__setitem__", "copy_", "fill_", "zero_"}
# Functions that move values, or mix those of all places, in a way that is not followed.
_SCATTERING = {
    "argsort", "diag_embed", "diagonal", "grid_sample", "masked_scatter", "masked_select", "put",
    "scatter", "scatter_add", "scatter_reduce", "sort", "take", "tril_indices", "index_add",
    "index_copy", "index_put", "channel_shuffle",
}  # fmt: skip
_SPECTRAL = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")  # fft2 too, and so on
# Other functions that write over a tensor, and not value by value as add_ and relu_ do.
_WRITING = {
    "addbmm_", "addmm_", "addmv_", "addr_", "as_strided_", "baddbmm_", "index_add_", "index_copy_",
    "index_fill_", "index_put_", "index_reduce_", "masked_scatter_", "put_", "resize_",
    "resize_as_", "scatter_", "scatter_add_", "scatter_reduce_", "set_", "squeeze_", "swapaxes_",
    "swapdims_", "t_", "transpose_", "unsqueeze_",
}  # fmt: skip
_SAMPLING = ("conv1d", "conv2d", "conv3d", "interpolate", "pool1d", "pool2d", "pool3d")
_ROUNDED, _UNEVEN = 0.5, 0.25  # of a token: what rounding may add, and where a crop may end
_FUSED = {"multi_head_attention_forward", "scaled_dot_product_attention"}


@dataclass(frozen=True, slots=True, eq=False)
class TokenPlaces:
    """The places of the queries and of the keys of one attention call, for one image.

    A place is a cell of a grid laid over the image, counted row by row from 0; ``NO_PLACE`` for a
    token that stands for no part of the image, such as a class token; ``PADDING`` for a cell beside
    the image that fills up a window.

    Attributes:
        shape: the leading axes of one image's probabilities, all but queries and keys; axes that
            mix windows and heads are split in two.
        window_axes: those of the axes of ``shape`` that count windows. The others count heads.
        queries: the place of each query, (windows, queries).
        keys: the place of each key, (windows, keys).
        query_grid: the rows and columns of the grid of the queries, for a clip the frames before
            them; empty if the queries have no places.
        key_grid: the same of the keys, which are fewer where a model pools them.
        unknown: why the places of queries and keys are not known, or that none has one; then
            ``NO_PLACE`` stands for all. Empty if any has a place.
        is_turned: the model has the probabilities as (…, keys, queries).
    """

    shape: tuple[int, ...]
    window_axes: tuple[int, ...]
    queries: Tensor
    keys: Tensor
    query_grid: tuple[int, ...]
    key_grid: tuple[int, ...]
    unknown: str = ""
    is_turned: bool = False

    @property
    def windows(self) -> int:
        """The number of windows: 1 where every query sees the whole image."""
        return len(self.queries)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return math.prod(self.shape) // self.windows

    def turn(self, probabilities: Tensor) -> Tensor:
        """Return probabilities as (…, queries, keys)."""
        return probabilities.transpose(-2, -1) if self.is_turned else probabilities

    def unlike(self, other: TokenPlaces | None, reason: str) -> TokenPlaces:
        """Return these places, or none for this reason if those of another forward differ."""
        if other is None or self.unknown or self._is_like(other):
            return self
        queries, keys = (torch.full_like(part, NO_PLACE) for part in (self.queries, self.keys))
        return replace(self, queries=queries, keys=keys, query_grid=(), key_grid=(), unknown=reason)

    def _is_like(self, other: TokenPlaces) -> bool:
        facts = ("shape", "window_axes", "query_grid", "key_grid", "is_turned")
        return (
            all(getattr(self, fact) == getattr(other, fact) for fact in facts)
            and torch.equal(self.queries, other.queries)
            and torch.equal(self.keys, other.keys)
        )

    def arrange(self, probabilities: Tensor) -> Tensor:
        """Return one image's probabilities as (windows, heads, queries, keys).

        Args:
            probabilities: they, (…, queries, keys), as ``turn`` returns them.
        """
        *_, queries, keys = probabilities.shape
        split = probabilities.reshape(*self.shape, queries, keys)
        heads = [axis for axis in range(len(self.shape)) if axis not in self.window_axes]
        last = len(self.shape)
        ordered = split.permute(*self.window_axes, *heads, last, last + 1)
        return ordered.reshape(self.windows, self.heads, queries, keys)


class _Trail(NamedTuple):
    """The pixels at which the values of a tensor stand, each of the shape of the tensor.

    ``columns`` is None but for products of two tensors that stand at pixels, and what was made of
    them: then ``own`` is where the queries (rows) stand, and ``columns`` where the keys do.
    """

    own: Tensor
    columns: Tensor | None = None


class TokenTrails:
    """The trails of the tensors of one forward of one image.

    Attributes:
        mixed: which of the places that ``follow`` returned, counted from 0, are those of a softmax
            that is added to other weights before it weighs the values.
        projected: those of a softmax that a learned projection changes before.
        saw_product: the last function multiplied tokens with tokens.
        saw_softmax: it was a softmax over what could not be followed.

    Example:
        >>> trails = TokenTrails(pixels, [vars(module) for module in model.modules()])
        >>> # for every function that the model calls, right after it returned:
        >>> places = trails.follow(function, args, kwargs, output)
    """

    def __init__(self, pixels: Tensor, learned: Sequence[object]) -> None:
        """Begin a forward.

        Args:
            pixels: the tensor that the model is given, (1, C, H, W) or (1, C, T, H, W).
            learned: tensors that are not computed from the pixels, such as parameters and buffers,
                also in lists and dictionaries.
        """
        self._sizes = tuple(pixels.shape[2:])
        self._trails: MutableMapping[Tensor, _Trail] = WeakIdKeyDictionary()
        count = math.prod(self._sizes)
        each = torch.arange(1, count + 1, dtype=torch.int32, device=pixels.device)
        self._learned: MutableMapping[Tensor, None] = WeakIdKeyDictionary()
        self._learned.update({part: None for part in _tensors_in(learned) if part is not pixels})
        self._shares: MutableMapping[Tensor, frozenset[int]] = WeakIdKeyDictionary()
        self._found = 0
        self.mixed: set[int] = set()
        self.projected: set[int] = set()
        self.saw_product = False
        self.saw_softmax = False
        self._trails[pixels] = _Trail(each.view(1, 1, *self._sizes).expand(pixels.shape))

    def follow(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: object,
    ) -> TokenPlaces | None:
        """Follow the tokens through one call of a function.

        Args:
            function: the function as torch's ``TorchFunctionMode`` names it.
            args: its positional arguments.
            kwargs: its keyword arguments.
            output: what it returned, None if it raised or returns nothing.

        Returns:
            The places of queries and keys if the call is an attention, or the softmax of one.
        """
        self.saw_product = self.saw_softmax = False
        places = self._follow(function, args, kwargs, output)
        outputs = list(_tensors_in(output))
        self._follow_shares(name_operation(function), list(_tensors_in((args, kwargs))), outputs)
        if places is not None:
            if _name_of(function) == "softmax":  # others return what was weighed already
                self._shares.update(dict.fromkeys(outputs, frozenset({self._found})))
            self._found += 1
        return places

    def _follow_shares(
        self, name: str, tensors: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        """Follow probabilities until they weigh the values, and note if others are mixed in."""
        shares = frozenset[int]().union(*(self._shares.get(part, ()) for part in tensors))
        if not shares or name in _FUSED:
            return
        others = [part for part in tensors if part not in self._shares]
        if name in _FACTORS and not (others and self._are_learned(others)):
            return
        if name in _FACTORS or name in _PROJECTING:
            self.projected |= shares
        for part in outputs:
            self._shares[part] = shares
            length = part.shape[-2:]
            alike = [each for each in tensors if each.shape[-2:] == length]
            if name in _MIXERS and len(alike) > 1 and min(length, default=0) > 1:
                self.mixed |= shares

    def _follow(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: object,
    ) -> TokenPlaces | None:
        name = _name_of(function)
        if name in _FUSED:
            return self._follow_fused(name, args, kwargs, output)
        args, kwargs = _first_by_place(args, kwargs)
        tensors = list(_tensors_in((args, kwargs)))
        outputs = list(_tensors_in(args[:1] if name == "__setitem__" else output))
        if not outputs or name.startswith("new_") or self._are_learned(tensors):
            self._learned.update(dict.fromkeys(outputs))
            return None
        given = [part for part in tensors if part in self._trails]
        try:
            trails = self._trails_of(function, name, args, kwargs, given, output)
        except (IndexError, RuntimeError, TypeError, ValueError):  # it takes no integers, and so on
            trails = [_Trail(_everywhere(_LOST, part)) for part in outputs]
        for part, trail in zip(outputs, trails, strict=True):
            if any(part is each for each in tensors):
                self._write(part, trail)
            self._trails[part] = trail
        return self._find_softmax(args, kwargs) if name == "softmax" else None

    def _write(self, target: Tensor, trail: _Trail) -> None:
        """Forget the places of all that shares the memory of a tensor that gets other places."""
        if torch.equal(self._own(target), trail.own):
            return
        memory = target.untyped_storage()._cdata
        for part in [*self._trails, *self._learned]:
            if part.untyped_storage()._cdata == memory:
                self._trails[part] = _Trail(_everywhere(_LOST, part))

    def _follow_fused(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], output: object
    ) -> TokenPlaces | None:
        """Return the places of a function that takes queries and keys, and follow its output."""
        query, key = (*args, *(kwargs[word] for word in ("query", "key") if word in kwargs))[:2]
        mixed = output[0] if isinstance(output, tuple) else output
        if not isinstance(mixed, Tensor):
            return None
        if _varies(self._own(query), -1):  # its channels stand at pixels: it mixes channels
            self._trails[mixed] = self._keep([query], mixed)
            return None
        queries, keys = self._own(query)[..., 0], self._own(key)[..., 0]
        self._trails[mixed] = _Trail(queries.unsqueeze(-1).expand(mixed.shape))
        if name == "multi_head_attention_forward":  # (tokens, N), or (tokens,) without a batch
            given = MULTI_HEAD_ARGUMENTS.bind(*args, **kwargs).arguments
            heads, added = given["num_heads"], (given["bias_k"] is not None, given["add_zero_attn"])
            queries, keys = (part.reshape(len(part), -1).T[:, None] for part in (queries, keys))
            keys = torch.nn.functional.pad(keys, (0, sum(added)), value=_LEARNED)
            return self._places(*(part.expand(-1, heads, -1) for part in (queries, keys)))
        if kwargs.get("enable_gqa"):  # groups of heads share their keys
            keys = keys[..., :1, :]
        shape = (queries[..., 0] + keys[..., 0]).shape  # one of them may serve all windows
        return self._places(*(part.expand(*shape, part.shape[-1]) for part in (queries, keys)))

    def _find_softmax(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TokenPlaces | None:
        """Return the places of a softmax, if it is taken over the product of two tensors."""
        own, columns = self._trails.get(args[0], _Trail(self._own(args[0])))
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        self.saw_softmax = columns is None and bool((own == _LOST).any())
        if columns is None or axis is None or axis % own.dim() < own.dim() - 2:
            return None
        if _varies(own, -1):  # the product was transposed: its columns are queries
            own, columns = columns, own
        if own.dim() == 2 and not (_varies(own, 0) and _varies(columns, 1)):
            return None  # scores of classes
        rows, columns = own[..., 0], columns[..., 0, :]
        if axis % own.dim() == own.dim() - 1:
            return self._places(rows, columns)
        return replace(self._places(columns, rows), is_turned=True)

    def _trails_of(
        self,
        function: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        given: Sequence[Tensor],
        output: object,
    ) -> list[_Trail]:
        """Return the trails of the tensors that a function returned."""
        if name in _REPLACING:
            return [self._replace(name, *args, *kwargs.values())]
        is_lost = name in _WRITING or name.rstrip("_") in _SCATTERING or name.startswith(_SPECTRAL)
        if is_lost or kwargs.get("out") is not None or _chooses(name, args, given):
            return [_Trail(_everywhere(_LOST, part)) for part in _tensors_in(output)]
        if isinstance(output, Tensor):
            return [self._trail_of(function, name, args, kwargs, given, output)]
        if name in _MOVING:
            moved = function(self._trails[given[0]].own, *args[1:], **kwargs)
            return [_Trail(own) for own in _tensors_in(moved)]
        return [_Trail(_everywhere(_LOST, part)) for part in _tensors_in(output)]

    def _trail_of(
        self,
        function: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        given: Sequence[Tensor],
        output: Tensor,
    ) -> _Trail:
        """Return the trail of the one tensor that a function returned."""
        if name in _JOINING:
            parts = [self._own(part) for part in args[0]]
            return _Trail(torch.as_tensor(function(parts, *args[1:], **kwargs)))
        if name in _FACTORS and (product := self._multiply(name, args, kwargs, output)):
            return product
        if args and args[0] is given[0]:
            trail = self._trails[given[0]]
            if name in _MOVING:
                move = Tensor.reshape if name == "view" else function  # a trail lies otherwise
                return _each(trail, lambda part: move(part, *args[1:], **kwargs))
            if name == "pad":
                sides = args[1] if len(args) > 1 else kwargs["pad"]
                return _Trail(torch.nn.functional.pad(trail.own, sides, value=_OUTSIDE))
            if name.endswith(_SAMPLING) and output.dim() == trail.own.dim():
                return _each(trail, lambda part: _sample(part, output.shape))
            if name in _REDUCING and output.dim() > 1:
                reduced = _each(trail, lambda part: _reduce(part, *args[1:2], **kwargs))
                # a sum over the keys, say, is no product any more
                return reduced if _is_product(reduced) else _Trail(reduced.own)
        if name_operation(function) == "mul" and (product := self._multiply_all(given, output)):
            return product
        return self._keep(given, output)

    def _replace(self, name: str, target: Tensor, *options: Any) -> _Trail:
        """Return the trail of a tensor of which a part, or all for ``copy_``, was replaced."""
        index, value = options if name == "__setitem__" else (..., (*options, 0)[0])
        own, columns = self._trails.get(target, _Trail(self._own(target)))
        given = self._trails.get(value) if isinstance(value, Tensor) else None
        is_learned = self._are_learned(_tensors_in(value))
        is_mask = isinstance(index, Tensor) and index.shape == own.shape
        if is_learned and (columns is not None or is_mask):
            return _Trail(own, columns)  # a token stays where it is if some of its values are set
        if any(part in self._trails for part in _tensors_in(index)) or not (is_learned or given):
            return _Trail(_everywhere(_LOST, own))
        if given is None:
            written = torch.zeros_like(own, dtype=torch.bool)
            written[index] = True
            axes = (axis for axis in range(own.dim()) if _varies(written, axis))
            if any(not _varies(own, axis) for axis in axes):  # such as some channels of all tokens
                return _Trail(own)
            return _Trail(own.masked_fill(written & (own > _OUTSIDE), _LEARNED))
        own = own.clone()
        if given.columns is not None:
            columns = torch.full_like(own, _LEARNED) if columns is None else columns.clone()
            columns[index] = given.columns
        own[index] = given.own
        return _Trail(own, columns)

    def _multiply(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor
    ) -> _Trail | None:
        """Return the trail of a product of two tensors, None for one with learned weights."""
        letters = _letters_of(name, args, kwargs, output)
        if letters is None:
            return None
        (left, in_left), (right, in_right), in_output = letters
        summed = (set(in_left) & set(in_right)) - set(in_output)
        left_trail, right_trail = self._trails.get(left), self._trails.get(right)
        own, columns = (
            _spread(self._own(tensor), inside, in_output, output.shape)
            for tensor, inside in ((left, in_left), (right, in_right))
        )
        if left_trail is not None and left_trail.columns is not None:
            return _Trail(own)  # probabilities times values stand where the queries do
        if right_trail is not None and right_trail.columns is not None:
            return _Trail(columns)
        weighted = any(_is_weights(trail) for trail in (left_trail, right_trail) if trail)
        if weighted or right_trail is None or (left_trail is None and left.dim() != right.dim()):
            return None
        across = any(
            _varies(self._own(tensor), inside.index(letter))
            for tensor, inside in ((left, in_left), (right, in_right))
            for letter in summed
        )
        if across:
            return _Trail(_everywhere(_WEIGHTS, output))
        self.saw_product = any(map(_has_places, (own, columns)))
        return _Trail(own, columns)

    def _multiply_all(self, given: Sequence[Tensor], output: Tensor) -> _Trail | None:
        """Return the trail of each value of one tensor times each value of another, (…, L, M, D).

        It is None for other products. A product of matrices may be written so, with a sum over the
        last axis behind it.
        """
        if len(given) != 2 or output.dim() < 3:
            return None
        own, columns = (self._trails[part].own for part in given)
        if own.shape[-3:-1] != (output.shape[-3], 1):
            own, columns = columns, own
        lengths = (own.shape[-3:-1], columns.shape[-3:-1])
        if lengths != ((output.shape[-3], 1), (1, output.shape[-2])) or 1 in output.shape[-3:-1]:
            return None
        self.saw_product = _has_places(own) or _has_places(columns)
        return _Trail(own.expand(output.shape), columns.expand(output.shape))

    def _keep(self, given: Sequence[Tensor], output: Tensor) -> _Trail:
        """Return the trail of what was computed value by value, or from the channels of tokens."""
        trails = [self._trails[tensor] for tensor in given]
        trails = [trail for trail in trails if not _is_weights(trail)] or trails
        same = [trail for trail in trails if trail.own.shape == output.shape]
        if same:
            return max(same, key=lambda trail: trail.columns is not None)
        for trail in trails:
            if trail.own.shape[:-1] == output.shape[:-1]:
                return _each(trail, lambda part: part[..., :1].expand(output.shape))
        for trail in trails:
            if _spreads_to(trail.own.shape, output.shape):
                return _each(trail, lambda part: part.expand(output.shape))
        return _Trail(_everywhere(_LOST, output))

    def _are_learned(self, tensors: Iterable[Tensor]) -> bool:
        """Return whether all tensors, if any, were seen to be computed without the pixels."""
        return all(part in self._learned and part not in self._trails for part in tensors)

    def _own(self, tensor: Tensor) -> Tensor:
        """Return where a tensor stands; it is lost if no function was seen to make it."""
        if tensor in self._trails:
            return self._trails[tensor].own
        return _everywhere(_LEARNED if tensor in self._learned else _LOST, tensor)

    def _places(self, queries: Tensor, keys: Tensor) -> TokenPlaces:
        """Return the places of queries (…, L) and keys (…, M) of the same leading axes."""
        queries, keys = queries.cpu(), keys.cpu()
        both = torch.cat([queries, keys], -1)
        shape: list[int] = []
        windows: list[int] = []
        for axis, length in enumerate(both.shape[:-1]):
            heads = _run_length(both, axis)
            if heads < length:
                windows.append(len(shape))
            shape += [length] if heads in (1, length) else [length // heads, heads]
        first = tuple(slice(None) if axis in windows else 0 for axis in range(len(shape)))
        at = [
            part.reshape(*shape, -1)[first].reshape(-1, part.shape[-1]) for part in (queries, keys)
        ]
        if any(bool((part <= _LOST).any()) for part in at):  # or _WEIGHTS
            queries, keys = (torch.full(part.shape, NO_PLACE) for part in at)
            why = "the places of its tokens could not be followed from the pixels on"
            return TokenPlaces(tuple(shape), tuple(windows), queries, keys, (), (), why)
        (query_cells, query_grid), (key_cells, key_grid) = (self._cells(part) for part in at)
        if query_cells is None or key_cells is None:
            queries, keys = (torch.full(part.shape, NO_PLACE) for part in at)
            why = "its tokens stand for a part of the image that is no whole number of them"
            return TokenPlaces(tuple(shape), tuple(windows), queries, keys, (), (), why)
        why = "its tokens stand for no parts of the image, as far as they could be followed"
        why = "" if query_grid or key_grid else why
        return TokenPlaces(
            tuple(shape), tuple(windows), query_cells, key_cells, query_grid, key_grid, why
        )

    def _cells(self, pixels: Tensor) -> tuple[Tensor | None, tuple[int, ...]]:
        """Return the cells of these pixels in a grid over the image, and the size of the grid.

        The cells are None if no grid over the whole image has them.
        """
        cells = torch.full(pixels.shape, PADDING)
        cells[pixels == _LEARNED] = NO_PLACE
        placed = pixels > _OUTSIDE
        if not placed.any():
            return cells, ()
        rest = pixels[placed].long() - 1
        index, stride = torch.zeros_like(rest), 1
        grid: list[int] = []
        for size in reversed(self._sizes):
            lines, rank = torch.unique(rest % size, return_inverse=True)
            of_lines, count = _cells_of_lines(lines, size)
            if of_lines is None:  # an image that the model turns round stands at its last pixels
                of_lines, count = _cells_of_lines((size - 1 - lines).flip(0), size)
                of_lines = None if of_lines is None else count - 1 - of_lines.flip(0)
            if of_lines is None:
                return None, ()
            index += of_lines[rank] * stride
            stride *= count
            grid.insert(0, count)
            rest //= size
        cells[placed] = index
        return cells, tuple(grid)


def _cells_of_lines(lines: Tensor, size: int) -> tuple[Tensor | None, int]:
    """Return the cell of each line of pixels that tokens stand at, and the number of all cells.

    The first pixel of a token stands for it, so tokens that divide the image stand at 0, step,
    2 step, and so on, but for rounding, and for padding behind the image. If lines are missing, as
    of an image that the model crops, cells are counted from the edge of the image. They are None
    if the edge of the part that is left is not that of a cell.

    Args:
        lines: the rows or columns of pixels, in ascending order, from 0.
        size: the number of rows or columns of the image.
    """
    count, first = len(lines), int(lines[0])
    if count == 1:
        return (None if first else lines), 1
    step = (int(lines[-1]) - first) / (count - 1)
    if first < step / 2 and -1 < size / step - count < _ROUNDED:
        return torch.arange(count), count
    places = lines / step
    cells, total = places.round().long(), round(size / step)
    uneven = max(float((places - cells).abs().max()), abs(size / step - total))
    fits = uneven <= _UNEVEN and bool(cells.diff().all()) and int(cells[-1]) < total
    return (cells if fits else None), total


def _each(trail: _Trail, change: Callable[[Tensor], Tensor]) -> _Trail:
    return _Trail(change(trail.own), None if trail.columns is None else change(trail.columns))


def _everywhere(value: int, tensor: Tensor) -> Tensor:
    """Return a trail of one value for a tensor, which takes the memory of that value alone."""
    return torch.tensor(value, dtype=torch.int32, device=tensor.device).expand(tensor.shape)


def _varies(trail: Tensor, axis: int) -> bool:
    """Return whether values at different indices of an axis stand at different pixels."""
    return trail.numel() > 0 and bool((trail != trail.narrow(axis, 0, 1)).any())


def _run_length(places: Tensor, axis: int) -> int:
    """Return how many neighbours along an axis have the same places: heads inside windows.

    It is 1 unless the axis is made of runs of the same length.
    """
    rows = places.movedim(axis, 0).flatten(1)
    starts = [0, *((rows[1:] != rows[:-1]).any(1).nonzero().flatten() + 1).tolist(), len(rows)]
    lengths = {end - start for start, end in itertools.pairwise(starts)}
    return lengths.pop() if len(lengths) == 1 else 1


def _sample(trail: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the trail of what a convolution or a pooling made, (N, C, …), of (N, C, …)."""
    picked = trail[:, :1]
    for axis in range(2, trail.dim()):
        step = torch.arange(shape[axis], device=trail.device) * trail.shape[axis] // shape[axis]
        picked = picked.index_select(axis, step)
    return picked.expand(*shape)


def _reduce(trail: Tensor, *axes: Any, **options: Any) -> Tensor:
    """Return the trail of a mean or a maximum over axes: the first pixel of all those taken.

    What is taken over the whole image stands at no pixel.
    """
    options.pop("dtype", None)
    first = torch.amin(trail, *axes, **options)
    of_all = _varies(trail.reshape(-1), 0) and not _varies(first.reshape(-1), 0)
    return _everywhere(_LEARNED, first) if of_all else first


def _chooses(name: str, args: Sequence[Any], given: Sequence[Tensor]) -> bool:
    """Return whether a function takes values from where other values of the image tell."""
    return name in _CHOOSING and any(part is not args[0] for part in given)


def _is_product(trail: _Trail) -> bool:
    """Return whether the last two axes of a trail are those of queries and keys."""
    own, columns = trail
    if columns is None or own.dim() < 2:
        return False
    return not (_varies(own, -1) or _varies(columns, -2))


def _is_weights(trail: _Trail) -> bool:
    return trail.own.numel() > 0 and int(trail.own.reshape(-1)[0]) == _WEIGHTS


def _spread(
    trail: Tensor, inside: Sequence[str], in_output: Sequence[str], shape: Sequence[int]
) -> Tensor:
    """Return the trail of a factor of a product for the product.

    Args:
        trail: the trail of the factor.
        inside: a letter for each axis of the factor.
        in_output: a letter for each axis of the product; axes of other letters are summed over.
        shape: the shape of the product.
    """
    summed = tuple(slice(None) if letter in in_output else 0 for letter in inside)
    kept = [letter for letter in inside if letter in in_output]
    ordered = trail[summed].permute([kept.index(each) for each in in_output if each in kept])
    new = tuple(slice(None) if letter in kept else None for letter in in_output)
    return ordered[new].expand(*shape)


def _letters_of(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor
) -> tuple[tuple[Tensor, list[str]], tuple[Tensor, list[str]], list[str]] | None:
    """Return both factors of a product and the product itself, with a letter for each axis.

    It is None for products of one or three factors, and of vectors.
    """
    if name == "einsum":
        equation, *operands = args
        factors = operands[0] if isinstance(operands[0], (list, tuple)) else operands
        inside, _, out = equation.replace(" ", "").partition("->")
        terms = [*inside.split(","), out]
        if len(factors) != 2 or not out:
            return None
        tensors = (*factors, output)
        left, right, made = (_letters_in(*pair) for pair in zip(terms, tensors, strict=True))
        return (factors[0], left), (factors[1], right), made
    first = 1 if name == "baddbmm" else 0  # after what is added
    left, right = (
        kwargs[word] if word in kwargs else args[place]
        for place, word in enumerate(_FACTORS[name], first)
    )
    if left.dim() < 2 or right.dim() < 2:
        return None
    lead = [str(axis) for axis in range(output.dim() - 2)]
    return (
        (left, [*lead[len(lead) + 2 - left.dim() :], "row", "summed"]),
        (right, [*lead[len(lead) + 2 - right.dim() :], "summed", "column"]),
        [*lead, "row", "column"],
    )


def _letters_in(term: str, tensor: Tensor) -> list[str]:
    """Return a letter for each axis of a tensor of ``einsum``; three dots stand for any number."""
    before, dots, after = term.partition("...")
    count = tensor.dim() - len(before) - len(after)
    return [*before, *(f"{dots}{place}" for place in range(count, 0, -1)), *after]


def _has_places(trail: Tensor) -> bool:
    return bool((trail > _OUTSIDE).any())


def _spreads_to(shape: Sequence[int], larger: Sequence[int]) -> bool:
    """Return whether a tensor of one shape can be expanded to the other."""
    if len(shape) > len(larger):
        return False
    ends = zip(reversed(shape), reversed(larger), strict=False)
    return all(length in (1, wanted) for length, wanted in ends)


def _first_by_place(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return arguments with the first one, if it was given by its name, in its place."""
    if args:
        return args, kwargs
    named = next((word for word in ("input", "tensors") if word in kwargs), None)
    if named is None:
        return args, kwargs
    return (kwargs[named],), {word: part for word, part in kwargs.items() if word != named}


def _tensors_in(values: object) -> Iterator[Tensor]:
    """Yield the tensors among values, and in lists and dictionaries of them."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _tensors_in(list(values.values()))
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors_in(value)


def _name_of(function: Callable[..., object]) -> str:
    """Return the name of a function, and of a property such as ``T`` the name of the property."""
    if function is torch.nn.functional.unfold:
        return "im2col"  # unlike Tensor.unfold, it mixes places and channels in one axis
    name = getattr(function, "__name__", "")
    if name == "__get__":
        return str(getattr(getattr(function, "__self__", None), "__name__", ""))
    return "matmul" if name == "__matmul__" else str(name)
