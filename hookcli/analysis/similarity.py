"""Compute how similar layers are, by linear centered kernel alignment (CKA) of every pair.

The estimate is the unbiased one of Song et al. 2012 (Feature selection via dependence maximization,
JMLR 13, equation 5): hookcli centers the matrix of similarities so that an image's similarity to
itself does not count, and CKA is the cosine of two such matrices. For many images, the products of
the matrices and their squared norms are means over batches of images (Nguyen et al. 2021, Do wide
and deep networks learn the same things?, equation 3).
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hookcli.analysis.features import EmptyLayerError
from hookcli.analysis.images import match_contents
from hookcli.errors import OutputError, RequestError
from hookcli.outside.documents import Rows
from hookcli.records.analysis import AnalysisDocument, Cosine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import IO

    from numpy.typing import NDArray

    from hookcli.analysis.features import Features, SavedCall
    from hookcli.records.analysis import WholePool

MOST_EXACT = 2000  # the largest number of images whose similarities are compared all at once
BATCH = 256  # images whose similarities are compared at once, if there are more
LEAST = 4  # images that the estimate needs

_PART = 32 << 20  # bytes of features in memory at a time
_SLICE = 16 << 20  # bytes of similarities of all layers in memory at a time
_NOTHING = 1e-12  # constant features have at most this variance, as a share of the squared norm


@dataclass(frozen=True, slots=True)
class PairRow:
    """How similar two layers are.

    Attributes:
        a: the id of a call (layer) in the first run.
        b: the id of a call in the second run; without a second run, of another call in the first.
        cka: the linear CKA of their features: 1 if these differ only by rotation and scale.
    """

    a: str
    b: str
    cka: Cosine


@dataclass(frozen=True, slots=True)
class LayerSimilarity:
    a: tuple[str, ...]  # the ids of the rows
    b: tuple[str, ...]  # the ids of the columns; the ids of A if there is no second run
    left_out: tuple[str, ...]  # the ids of the calls that have the same features for all images
    ckas: NDArray[np.float64]
    images: int
    batch: int  # how many images were compared at once
    is_one_run: bool

    def list_pairs(self) -> Iterator[PairRow]:
        for row, one in enumerate(self.a):
            for column, two in enumerate(self.b):
                if not self.is_one_run or column > row:
                    yield PairRow(one, two, float(self.ckas[row, column]))

    def list_partners(self) -> Iterator[PairRow]:
        ranked = self.ckas.copy()
        if self.is_one_run:
            np.fill_diagonal(ranked, -np.inf)
        for row, column in enumerate(ranked.argmax(1)):
            yield PairRow(self.a[row], self.b[column], float(self.ckas[row, column]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityDocument(AnalysisDocument):
    """The output of ``hookcli similarity --format json``.

    Attributes:
        images: the number of images that were compared.
        batch: the number of images that were compared at once; all images if CKA is exact.
        left_out: the calls that were left out, since all images have the same features.
        pairs: every pair of layers; with one run, each pair once.
        partners: for each layer of the first run, the pair with the most similar other layer.
    """

    images: int
    batch: int
    left_out: tuple[str, ...]
    pairs: Rows[PairRow]
    partners: tuple[PairRow, ...]


def linear_cka(a: Features, b: Features) -> float:
    """Return the unbiased linear CKA of two arrays (images, …) for the same images, at least 4."""
    if len(a) != len(b) or len(a) < LEAST:
        raise RequestError(
            f"similarity needs at least {LEAST} images, the same ones in both arrays, "
            f"not {len(a)} and {len(b)}",
            "give features (images, …)",
        )
    one, two = (_center(_multiply(np.reshape(each, (len(each), -1)))) for each in (a, b))
    norms = [float(np.linalg.norm(each)) for each in (one, two)]
    if not all(norms):
        raise EmptyLayerError("the features are the same for all images", "compare other layers")
    return float((one * two).sum() / norms[0] / norms[1])


def compare_layers(
    a: Sequence[SavedCall],
    b: Sequence[SavedCall] = (),
    pool: WholePool = "none",
    layer_done: Callable[[int], None] = lambda _: None,
    *,
    may_leave_out: bool = False,
) -> LayerSimilarity:
    """Return the linear CKA of each call in ``a`` with each call in ``b``.

    If ``b`` is empty, the calls in ``a`` are compared with each other. ``pool`` says what to
    compare of each channel: its ``mean`` or ``max`` over all places, or all of its values
    (``none``). A call with the same features for all images raises an EmptyLayerError, or is
    skipped if ``may_leave_out``. After each call, ``layer_done`` gets the number of calls done.
    """
    # Memory does not grow with the number of layers: a temporary file keeps the similarities.
    calls = [*a, *b]
    images = _match_images(a, b)
    batches = split_images(len(images[0]))
    length = sum(len(batch) ** 2 for batch in batches)
    try:
        with tempfile.TemporaryFile(prefix="hookcli-") as file:
            written: list[int] = []
            for number, (call, keys) in enumerate(zip(calls, images, strict=True)):
                try:
                    _write_similarities(call, keys, batches, pool, file)
                    written.append(number)
                except EmptyLayerError:
                    if not may_leave_out or (number == len(calls) - 1 and not written):
                        raise
                layer_done(number + 1)
            products = _multiply_all(file, len(written), length)
    except OSError as error:
        what = f"cannot write temporary files: {error.strerror}"
        raise OutputError(what, "set TMPDIR to a folder with free space") from error
    names = [calls[number].call_id for number in written]
    middle = sum(number < len(a) for number in written)
    return LayerSimilarity(
        tuple(names[:middle]),
        tuple(names[middle:] if b else names),
        tuple(call.call_id for number, call in enumerate(calls) if number not in written),
        (products[:middle, middle:] if b else products).clip(-1, 1),
        len(images[0]),
        max(map(len, batches)),
        is_one_run=not b,
    )


def split_images(count: int) -> list[NDArray[np.int64]]:
    # More than 2,000 images are drawn at random, always the same ones, in batches of about 256.
    if count < LEAST:
        what = f"similarity needs at least {LEAST} images, not {count}"
        raise RequestError(what, "run more images")
    if count <= MOST_EXACT:
        return [np.arange(count)]
    return np.array_split(np.random.default_rng(0).permutation(count), -(-count // BATCH))


def _match_images(a: Sequence[SavedCall], b: Sequence[SavedCall]) -> list[list[str]]:
    run = a[0].run
    others = match_contents(run, b[0].run) if b else dict(zip(run.images, run.images, strict=True))
    keys = [key for key in run.images if key in others]
    for known in (set(call.images) for call in a):
        keys = [key for key in keys if key in known]
    for known in (set(call.images) for call in b):
        keys = [key for key in keys if others[key] in known]
    if not keys:
        raise RequestError(
            "the runs have no image in common" if b else "no image was saved for all layers",
            "use the same images in both runs" if b else "choose other `layers`",
        )
    return [keys] * len(a) + [[others[key] for key in keys]] * len(b)


def _write_similarities(
    call: SavedCall,
    keys: Sequence[str],
    batches: Sequence[NDArray[np.int64]],
    pool: WholePool,
    file: IO[bytes],
) -> None:
    """Append the similarities of the images in each batch, for one call, to ``file`` as float32."""
    # A batch lists the positions of n images in ``keys``. Its similarities are a centered matrix
    # (n, n); all matrices of the call together are scaled to the norm 1.
    if pool == "none":
        parts = call.read_columns(_PART, keys)
    else:
        parts = iter([call.pool_features(pool, keys)])
    sums = [np.zeros((len(batch), len(batch))) for batch in batches]
    size = 0.0  # the mean squared norm of an image's features, to tell rounding from variance
    for part in parts:
        size += float(np.square(part, dtype=np.float64).sum()) / len(part)
        for index, batch in enumerate(batches):
            sums[index] += _multiply(part[batch])
    centered = [_center(each) for each in sums]
    norm = float(np.sqrt(sum(np.square(each).sum() for each in centered)))
    if not norm > _NOTHING * size:
        what = f"{call.call_id!r} has the same features for all images"
        raise EmptyLayerError(what, "leave it out: choose other `layers`")
    for each in centered:
        file.write((each / norm).astype(np.float32).tobytes())


def _multiply(features: Features) -> NDArray[np.float64]:
    """Subtract the mean row, which does not change CKA, and return the dot products of all rows."""
    shifted = features - features.mean(0, dtype=np.float64)
    # Without this power of two, products of 1e30 or 1e-30 would leave the range of float32.
    scale = 2.0 ** np.frexp(max(shifted.max(initial=0), -shifted.min(initial=0)))[1]
    small = (shifted / scale).astype(np.float32)
    products: NDArray[np.float64] = (small @ small.T).astype(np.float64)
    products *= scale**2
    return products


def _center(similarities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Center and scale similarities (n, n) in place, as the unbiased estimate of HSIC requires."""
    # The sum over the product of two such matrices is the unbiased HSIC of Song et al. 2012.
    count = len(similarities)
    np.fill_diagonal(similarities, 0)
    rows = similarities.sum(1)
    means = rows / (count - 2)
    similarities -= means[:, None]
    similarities -= means
    similarities += rows.sum() / ((count - 1) * (count - 2))
    np.fill_diagonal(similarities, 0)
    similarities /= math.sqrt(count * (count - 3))
    return similarities


def _multiply_all(file: IO[bytes], layers: int, length: int) -> NDArray[np.float64]:
    step = max(1, _SLICE // (4 * layers))
    products = np.zeros((layers, layers))
    for start in range(0, length, step):
        stop = min(start + step, length)
        part = np.empty((layers, stop - start), np.float32)
        for layer in range(layers):
            file.seek(4 * (layer * length + start))
            part[layer] = np.frombuffer(file.read(4 * (stop - start)), np.float32)
        wide = part.astype(np.float64)
        products += wide @ wide.T
    return products
