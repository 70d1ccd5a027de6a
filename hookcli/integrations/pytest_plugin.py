"""Provide the pytest fixture ``activations``; only ``activations.check`` imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hookcli.config import ModelRequest

_UPDATE = "--activations-update"


@dataclass(frozen=True, slots=True)
class Activations:
    """Compares models with golden files; the fixture ``activations`` returns an instance."""

    folder: Path  # of the test file; names of images and golden files are relative to it
    update: bool = False  # whether ``check`` writes golden files instead of comparing with them

    def check(
        self,
        model: nn.Module | str | ModelRequest,
        image: str | PathLike[str] | Tensor | NDArray[Any],
        golden: str | Path,
        *,
        layers: str | Sequence[str] = "all",
        rtol: float | None = None,
        atol: float = 0.0,
        layer_rtol: Mapping[str, float] | None = None,
        equal_nan: bool = False,
    ) -> None:
        """Fail the test if a layer differs from the golden file, and name the first such layer.

        ``hookcli golden`` writes golden files. A module runs in evaluation mode on its own device,
        and is restored afterwards.

        Example:
            >>> def test_the_network_gives_what_it_gave(activations):
            ...     activations.check(make_network(), "photo.png", "network.json")

        Args:
            model: a module; the name of a model as on the command line; or a
                ``ModelRequest`` of ``hookcli.config``, for example to choose the model's weights. A
                model given by name runs on the CPU.
            image: the file of an image, which is prepared as on the command line; or pixels as the
                network takes them, floats (C, H, W) or (N, C, H, W).
            golden: the path of the golden file.
            layers: one or more layer filters, as for ``--layers``.
            rtol: the tolerated difference of a call, relative to the size of the call's golden
                values; None for the default of the call's dtype.
            atol: the absolute difference that is tolerated in addition, in the activations' unit.
            layer_rtol: values of ``rtol`` for some calls; each key is a glob for call ids. If
                several globs match a call, the last glob applies.
            equal_nan: whether NaN in the same places counts as equal.
        """
        __tracebackhide__ = True
        from hookcli.distance.tolerance import Tolerance
        from hookcli.errors import HookcliError
        from hookcli.integrations.golden_check import check_golden

        file = self.folder / golden
        if not self.update and not file.exists():
            what = f"there is no golden file {str(file)!r}; to make it: pytest {_UPDATE}"
            pytest.fail(what, pytrace=False)
        shown = self.folder / image if isinstance(image, (str, PathLike)) else image
        forms = (layers,) if isinstance(layers, str) else tuple(layers)
        by_layer = tuple((layer_rtol or {}).items())
        tolerance = Tolerance(rtol=rtol, atol=atol, layers=by_layer, equal_nan=equal_nan)
        try:
            difference = check_golden(model, shown, file, forms, tolerance, update=self.update)
            message = f"{difference}\nif this is meant: pytest {_UPDATE}" if difference else ""
        except HookcliError as error:
            message = f"{error.message}\nhint: {error.hint}" if error.hint else error.message
        if message:
            pytest.fail(message, pytrace=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes tests write golden files."""
    text = "Write the golden files of activations.check instead of comparing with them."
    parser.getgroup("hookcli").addoption(_UPDATE, action="store_true", help=text)


@pytest.fixture
def activations(request: pytest.FixtureRequest) -> Activations:
    """Provide ``activations.check(...)``, which compares a model's layers with a golden file."""
    return Activations(request.path.parent, request.config.getoption(_UPDATE))
