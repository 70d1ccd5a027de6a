"""Define the options and default limits of a comparison, and estimate the errors of rounding."""

from __future__ import annotations

import fnmatch
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from hookcli.errors import RequestError
from hookcli.outside.documents import Distance, keywords
from hookcli.outside.flags import Flag
from hookcli.outside.parse import read_threshold

if TYPE_CHECKING:
    from collections.abc import Iterable

Metric: TypeAlias = Literal["rel-l2", "max-abs", "mean-abs", "cosine"]

RTOL = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 5e-2}
RTOL |= {"complex128": RTOL["float64"], "complex64": RTOL["float32"], "complex32": RTOL["float16"]}
"""The default relative tolerance by dtype.

Tensors of other dtypes, including integers, must be equal. The defaults follow from measurements on
all 80 classifiers of torchvision, 27,268 calls, with random weights and a photo. The largest
relative L2 distances of any call were:

    the same run again                0
    one thread against two            2.1e-6    inception_v3; 1.7e-6 in all others
    two images at once against one    2.1e-6    inception_v3; 1.7e-6 in all others
    channels last against contiguous  4.7e-6    inception_v3; 2.9e-6 in all others
    bfloat16 against float32          4.2e-2    efficientnet_v2_l; 3.6e-2 in all others
    float16 against float32           1.9e-3    in the 48 models whose values fit into float16

In the other 32 models, values underflow or overflow in float16, and the distance is larger, up to
NaN. hookcli should report such a distance.
"""
EPSILON = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
"""The distance of 1 from the next larger number, by dtype."""

_RANGED = (
    *("sigmoid", "softmax", "softmin", "tanh", "erf", "cosinesimilarity", "normalize"),
    *("layernorm", "groupnorm", "instancenorm", "rmsnorm"),
)
_GATES = ("gelu", "silu", "swish", "mish")  # a number of a fixed range times the input
_UNITS, _GATED_UNITS = 4, 32
"""The error, in ``EPSILON``, that outputs near 0 may have if their operator has a fixed range.

The second number is for gates, such as GELU. A sigmoid of 1e-8 is the difference of numbers around
1, so its error is a multiple of ``EPSILON`` and not of 1e-8. For inputs from -90 to 20, outputs of
PyTorch 2.15 and ONNX Runtime in float32 differed from float64 by at most 1.5 (sigmoid), 2.5 (tanh),
10 (GELU) and 19 (SiLU) multiples of ``EPSILON``. ONNX Runtime approximates the first two by
rational functions (``MlasLogisticKernel``, ``MlasTanhKernel``; the coefficients are those of
Eigen). For comparison, ``torch.testing.assert_close`` accepts 84 multiples for any operator
(``atol=1e-5``).
"""
_SUMS = ("mean", "sum", "avgpool", "averagepool")
SKETCHED = 1e-6  # the smallest default tolerance for sketches, whose values are float32


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance: The part of a request that says how far a call of B may be from the call of A.

    A call passes if the size of B - A is at most ``atol + rtol * (size of A)``. The metric defines
    the size: the root mean square (``rel-l2``), the largest magnitude (``max-abs``) or the mean
    magnitude (``mean-abs``). With ``cosine``, a call passes if 1 minus the cosine is at most
    ``rtol``. The default ``rtol`` for ``cosine`` is half the square of the default for the other
    metrics, because noise with the relative L2 size x changes the cosine by x**2 / 2.

    Attributes:
        rtol: If no value is given, the default for the coarsest dtype of the compared tensors and
            models applies.
        atol: The value is in the unit of the activations. It must be 0 for the metric ``cosine``.
        layers: If several globs match a call, the last of these globs applies.

    Raises:
        RequestError: ``rtol`` or ``atol`` is not finite, or ``atol`` has no effect.
    """

    metric: Annotated[
        Metric,
        Flag("--metric METRIC", "rel-l2, cosine, max-abs or mean-abs; the last two need tensors."),
    ] = "rel-l2"
    rtol: Annotated[
        float | None,
        keywords(minimum=0),
        Flag(
            "--rtol X",
            "Largest difference, relative to A.  [default: by dtype: float32 1e-5, float16 5e-3, "
            "bfloat16 5e-2]",
            at_least=0,
        ),
    ] = None
    atol: Annotated[
        float,
        keywords(minimum=0),
        Flag("--atol X", "Absolute difference allowed in addition.", at_least=0),
    ] = 0.0
    layers: Annotated[
        tuple[tuple[str, Distance], ...],
        Flag(
            "--layer-tolerance GLOB=RTOL",
            "A separate --rtol for some calls: 'layer4.*=1e-2'.",
            many=True,
            read=read_threshold,
        ),
    ] = ()
    equal_nan: Annotated[bool, Flag("--equal-nan", "Treat NaN in the same places as equal.")] = (
        False
    )

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not math.isfinite(value):
                raise RequestError(f"`{name}` {value}: not a finite number", f"`{name}=0.001`")
        if self.atol and self.metric == "cosine":
            raise RequestError("`atol` has no effect on `metric='cosine'`", "use `rtol`")

    def chosen_for(self, call_id: str) -> float | None:
        chosen = [rtol for glob, rtol in self.layers if matches(glob, call_id)]
        return chosen[-1] if chosen else self.rtol

    def rtol_of(self, call_id: str, dtypes: Iterable[str], *, sketched: bool) -> float:
        if (chosen := self.chosen_for(call_id)) is not None:
            return chosen
        default = max(RTOL.get(dtype, 0.0) for dtype in dtypes)  # of the coarsest
        default = max(default, SKETCHED) if sketched and default else default
        return default**2 / 2 if self.metric == "cosine" else default


def coarser(*dtypes: str) -> str:
    # The coarsest has the fewest digits; dtypes without floating-point numbers do not count.
    return max((each for each in dtypes if each in EPSILON), key=EPSILON.__getitem__, default="")


def is_gate(operator: str) -> bool:
    """Return whether an operator multiplies its input by a gate, as GELU, SiLU and Mish do."""
    name = operator.lower()
    return any(part in name for part in _GATES) and "hard" not in name


def floor_of(operators: Iterable[str], dtype: str, *, is_saturated: bool = False) -> float:
    """Return the absolute error that rounding may cause in an output of a fixed range, else 0.

    ``operators`` names the modules or functions that computed the output. Sigmoid and softmax, for
    example, have a fixed range. Gates such as SiLU have one, too, if ``is_saturated``, which means
    that all their inputs are negative. ``dtype`` is the coarsest dtype in the computation. A 16-bit
    dtype has the error of float32, because libraries compute a function in float32 and then round.
    """
    names = [each.lower().replace("_", "") for each in operators]
    units = _UNITS if any(part in name for part in _RANGED for name in names) else 0
    units = _GATED_UNITS if is_saturated and any(map(is_gate, names)) else units
    return units * min(EPSILON[dtype], EPSILON["float32"]) if dtype in EPSILON else 0.0


def error_of_sum(operator: str, summands: float, dtype: str) -> float:
    """Return the relative rounding error of adding ``summands`` numbers in ``dtype``.

    The error is 0 unless the operator is a sum, a mean or an average pooling.
    """
    # The errors of n additions grow as the square root of n times half of ``EPSILON`` (Higham and
    # Mary, A new approach to probabilistic rounding error analysis, 2019). Libraries add numbers of
    # 16 bits in float32.
    name = operator.lower().replace("_", "")
    if dtype not in EPSILON or not any(part in name for part in _SUMS):
        return 0.0
    return math.sqrt(summands) * min(EPSILON[dtype], EPSILON["float32"]) / 2


def matches(glob: str, call_id: str) -> bool:
    # The glob may match the whole call id, the call id without its side, or the module path alone.
    pattern = glob.replace("[", "[[]")  # brackets hold an output key, not a set of characters
    bare = call_id.partition(":")[2] if ":" in call_id else call_id
    bare = re.sub(r"@[^@]*$", "", bare)  # of gradients for several targets
    path = bare.partition("#")[0].partition("[")[0]
    return any(fnmatch.fnmatchcase(name, pattern) for name in (call_id, bare, path))
