"""The choice of the products that a run makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.products.attention_heads import AttentionHeads
from hookcli.products.charts import GradientFlow, Overview
from hookcli.products.figures import Figures
from hookcli.products.focus import Focus
from hookcli.products.grids import Grids
from hookcli.products.heats import Heats
from hookcli.products.input_pictures import InputPictures, ThumbnailProduct
from hookcli.products.tensors import Tensors
from hookcli.products.top_images import TopImages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.products.product import Product, Scope


def list_products(scope: Scope) -> tuple[Product, ...]:
    return tuple(_choose(scope))


def _choose(scope: Scope) -> Iterator[Product]:
    config, attention = scope.config, scope.config.attention
    yield InputPictures(scope)
    if scope.has_several:
        yield ThumbnailProduct(scope)
    if scope.style.mode != "none":
        yield Grids(scope)
    yield Figures(scope)
    if config.backward is not None or attention is not None or config.heat is not None:
        yield Heats(scope)
    if config.backward is not None:
        yield GradientFlow(scope, config.backward)
    if attention is not None:
        yield AttentionHeads(scope)
    if config.tensors.save is not None or config.tensors.attention:
        yield Tensors(scope)
    if scope.has_several and config.top_images:
        yield TopImages(scope)
    if config.focus is not None:
        yield Focus(scope, config.focus)
    if config.overview:
        yield Overview(scope)
