"""What the pages share: how names get into them, their style, and what links to the files beside them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hookcli import escape


def make_environment() -> Environment:
    """Templates whose values are escaped, and in which a name that is not there is an error."""
    environment = Environment(
        loader=PackageLoader("hookcli.render.report", "assets"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = _figure
    return environment


def ours(text: str) -> Markup:
    """Text that was written or escaped here, to stand in the page as it is."""
    return Markup(text)  # noqa: S704


def _shown(value: object) -> object:
    """Names as they are, with what would not be seen, or would turn the text around, written out."""
    return escape.for_page(value) if type(value) is str else value


def linked(file: str) -> str:
    """The address of a file beside the page."""
    return Markup(quote(file))  # noqa: S704  nothing is left to escape


def asset(name: str) -> str:
    """A file of the folder ``assets``."""
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
