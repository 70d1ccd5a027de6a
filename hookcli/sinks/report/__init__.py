"""The page of a run: ``report.html``, from the document that ``report.json`` holds. No torch, no image work."""

from hookcli.sinks.report.document import choose_images, read_document
from hookcli.sinks.report.rendering import remake_report, render_report

__all__ = ["choose_images", "read_document", "remake_report", "render_report"]
