"""The page of a run: ``report.html``, from the document that ``report.json`` holds. No torch, no image work."""

from hookcli.sinks.report.document import read_document
from hookcli.sinks.report.rendering import render_report

__all__ = ["read_document", "render_report"]
