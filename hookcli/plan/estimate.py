"""An estimate of the files that a run will write, and of their size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.products.catalog import list_products
from hookcli.products.figures import keeps_sketches

if TYPE_CHECKING:
    from hookcli.outside.urls import Place
    from hookcli.products.product import Outlook, Scope
    from hookcli.records.images import SkippedImage

_PAGE_BYTES = 250_000  # per image in the page, its JSON and the manifest
_FILES = 5  # run.json, layers.csv, report.json, report.html, manifest.json


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do."""

    layers: int
    images: int
    files: int  # about how many, if each layer is called once
    megabytes: float  # about how many at most
    out_dir: Place
    skipped: tuple[SkippedImage, ...] = ()
    grids: str = "layers"
    sketches: bool = False
    operations: int = 0  # how many of the layers are functional operations


def make_plan(scope: Scope, outlook: Outlook, out_dir: Place) -> Plan:
    """Return what a run will write."""
    costs = [product.estimate(outlook) for product in list_products(scope)]
    has_skipped = scope.images < len(scope.config.run.images.names)  # skipped.csv lists them
    return Plan(
        len(outlook.layers),
        scope.images,
        _FILES + has_skipped + sum(cost.files for cost in costs),
        megabytes=(_PAGE_BYTES + sum(cost.size for cost in costs)) / 1e6,
        out_dir=out_dir,
        grids=scope.style.mode,
        sketches=keeps_sketches(scope),
        operations=sum(layer.is_operation for layer in outlook.layers),
    )
