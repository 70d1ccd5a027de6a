"""Set up pages' templates, assets and links; escape ``<`` and ``>`` in JSON for a page's script."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as markup_escape

from hookcli.outside import escape
from hookcli.outside.documents import to_fields


def make_environment(**filters: Any) -> Environment:
    environment = Environment(
        loader=PackageLoader("hookcli.render.report", "assets"),
        autoescape=True,
        finalize=lambda value: escape.for_page(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = lambda value: "" if value is None else f"{value:.4g}"
    environment.filters |= filters
    return environment


def ours(text: str) -> Markup:
    """Mark text that is hookcli's own, or already escaped, as safe to insert without escaping."""
    return Markup(text)  # noqa: S704


def breakable(name: str) -> Markup:
    """Return a name as HTML in which a browser may break the line after each dot and colon."""
    shown = markup_escape(escape.for_page(name))
    return shown.replace(".", Markup(".<wbr>")).replace(":", Markup(":<wbr>"))


def linked(file: str) -> str:
    return Markup(quote(file))  # noqa: S704  quote() leaves nothing to escape


def assets(*names: str) -> Markup:
    folder = Path(__file__).parent / "assets"
    return ours("".join((folder / name).read_text(encoding="utf-8") for name in names))


def script_data(data: object) -> Markup:
    """Return data as JSON in which no text can end the surrounding script element."""
    text = json.dumps(data, separators=(",", ":"), default=to_fields)
    return ours(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def hash_scripts(*texts: str) -> Markup:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return ours(" ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))
