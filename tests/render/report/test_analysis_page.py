"""The page of an analysis that has no template of its own."""

from __future__ import annotations

from dataclasses import dataclass

from hookcli.records.analysis import AnalysisDocument
from hookcli.render.report.analysis_page import render_analysis


@dataclass(frozen=True, slots=True)
class NormRow:
    layer: str
    images: int
    norm: float


def test_an_analysis_without_a_template_shows_its_rows_as_a_table():
    document = AnalysisDocument(command=None, folder="", runs=())
    rows = (NormRow("<conv>", 2, 1 / 3), NormRow("fc", 2, 20.0))
    page = render_analysis("norms", "Norms", document, {"rows": rows, "table": "norms 1.csv"})
    assert page.partition("<table>\n")[2].partition("</section>")[0] == (
        '<tr><th scope="col">layer</th><th scope="col">images</th><th scope="col">norm</th></tr>'
        "<tr><td>&lt;conv&gt;</td><td>2</td><td>0.333</td></tr>"
        "<tr><td>fc</td><td>2</td><td>20</td></tr>"
        '</table></div><p><a href="norms%201.csv">norms 1.csv</a> has every value.</p>'
    )
