"""Pages: of a run, from the document that ``report.json`` holds, and of two runs. No torch, no image work."""

from hookcli.sinks.report.differing import DiffPage, DiffPicture, render_difference
from hookcli.sinks.report.document import choose_images, read_report
from hookcli.sinks.report.rendering import remake_report, render_report

__all__ = [
    "DiffPage",
    "DiffPicture",
    "choose_images",
    "read_report",
    "remake_report",
    "render_difference",
    "render_report",
]
