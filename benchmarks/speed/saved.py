"""Saves a run: the ratios that later runs are compared with, the tables of the page, and the plots."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.speed import figures, plot, table
from benchmarks.speed.figures import Report
from benchmarks.speed.systems import ROOT, TIDEMARK

Told = Callable[[Report], str]
RATIOS = Path(__file__).with_name("ratios.json")
PAGE = ROOT / "docs" / "benchmarks.md"
TABLES: Mapping[str, Told] = {"summary": table.brief, "figures": table.markdown}
"""The tables that ``make bench`` writes into the page, each between its two marks."""
PLOTS = ROOT / "docs" / "plots"


def compared(report: Report, path: Path = RATIOS) -> list[str]:
    """List the regressions from the saved ratios; none where those are of another machine or kind."""
    before = _saved(path).get(report.kind)
    if before is None or not same_machine(before["machine"], report.machine):
        return []
    return figures.regressions(figures.ratios_of(report, TIDEMARK.name), before["ratios"])


def _saved(path: Path) -> dict[str, Any]:
    """Return the saved runs by kind."""
    saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return saved


def same_machine(first: object, second: object) -> bool:
    """Return whether ratios are comparable: the same processor, cores and Python."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return False
    return all(first.get(fact) == second.get(fact) for fact in ("system", "processor", "cores"))


def keep(report: Report, path: Path = RATIOS, plots: Path = PLOTS, page: Path | None = PAGE) -> None:
    """Save a run; the page and the plots show a full run only."""
    ratios = {"machine": dict(report.machine), "ratios": figures.ratios_of(report, TIDEMARK.name)}
    path.write_text(json.dumps(_saved(path) | {report.kind: ratios}, indent=1) + "\n", encoding="utf-8")
    if report.kind != "full":
        return
    plots.mkdir(exist_ok=True)
    for name, drawn in plot.all_plots(report).items():
        (plots / f"{name}.svg").write_text(drawn, encoding="utf-8")
    if page is None:
        return
    text = page.read_text(encoding="utf-8")
    for name, marks_ in TABLES.items():
        text = placed(text, name, marks_(report))
    page.write_text(text, encoding="utf-8")


def marks(name: str) -> tuple[str, str]:
    """Return the lines of a page that enclose a table."""
    return f"<!-- {name}: made by make bench -->", f"<!-- end of {name} -->"


def placed(page: str, name: str, part: str) -> str:
    """Return a page with one table renewed; a page without its marks stays as it is."""
    first, last = marks(name)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    return f"{before}{begin}\n{part}\n{end}{after}" if begin and end else page
