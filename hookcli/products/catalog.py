"""Choose which products (pictures, tables, tensors) a run makes."""

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
    from hookcli.products.product import Product, Scope


def list_products(scope: Scope) -> tuple[Product, ...]:
    config, attention = scope.config, scope.config.attention
    backward = config.backward is not None
    chosen: dict[type[Product], bool] = {
        InputPictures: True,
        ThumbnailProduct: scope.has_several,
        Grids: scope.style.mode != "none",
        Figures: True,
        Heats: backward or attention is not None or config.heat is not None,
        GradientFlow: backward,
        AttentionHeads: attention is not None,
        Tensors: config.tensors.save is not None or config.tensors.attention,
        TopImages: scope.has_several and config.top_images > 0,
        Focus: config.focus is not None,
        Overview: config.overview,
    }
    return tuple(product(scope) for product, is_chosen in chosen.items() if is_chosen)
