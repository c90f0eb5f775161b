"""Formats the figures as text. A table has all systems of a work, with ratios to the bare relay and each peer."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.speed import shares
from benchmarks.speed.figures import OURS, Figures, Report

HEADS = ("", "CPU ms", "x floor", "x ours", "store ms", "p50 ms", "p99 ms", "added p50", "added p99", "per s", "failed")


def machine_line(report: Report) -> str:
    """Return the day and the machine."""
    facts = report.machine
    return (
        f"{facts['date']}: {facts['cores']} cores {facts['processor']}, {facts['system']}, Python {facts['python']}, "
        f"load {facts['load']} at the start; {report.rounds} interleaved rounds"
    )


def _row(system: str, figures: Figures) -> list[str]:
    lost = figures.failed + figures.missing
    return [
        system,
        f"{figures.cpu_ms:.2f}",
        f"{figures.ratios['cpu']:.2f}" if figures.ratios.get("cpu") and system != "direct" else "",
        f"{figures.ratios['cpu_to_ours']:.2f}" if figures.ratios.get("cpu_to_ours") and system != "direct" else "",
        f"{figures.store_ms:.2f}" if figures.store_ms else "",
        f"{figures.first_p50_ms:.2f}",
        f"{figures.first_p99_ms:.2f}",
        f"{figures.added_p50_ms:.2f}",
        f"{figures.added_p99_ms:.2f}",
        f"{figures.per_second:.0f}",
        str(lost) if lost else "",
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns, the first to the left."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def text(report: Report) -> str:
    """Return the whole report for a terminal."""
    lines = [machine_line(report), ""]
    rows = [["", "ready s", "MB at rest", "MB after"]]
    for name, system in report.systems.items():
        rows.append([name, f"{system['ready_seconds']:.2f}", f"{system['rest_mb']:.0f}", f"{system['after_mb']:.0f}"])
    lines += aligned(rows)
    for work, title in report.works.items():
        by_system = {system: figures for system in report.figures if (figures := report.at(system, work))}
        lines += [
            "",
            f"{title} ({work})",
            *aligned([list(HEADS), *(_row(name, figures) for name, figures in by_system.items())]),
            *shares.lines(report, work),
        ]
    lines += [f"\n{name} was left out: {why}" for name, why in report.skipped.items()]
    return "\n".join(lines)


BRIEF = ("small", "history-1000", "stream-100-paced")
"""The works of the page's first table."""
OF_PAGE = (*BRIEF, "unseen-1000", "reused", "crossing", "streams-500")
"""The works of the page's last tables; a terminal gets all of them."""


def markdown(report: Report) -> str:
    """Return the page's last tables: the most telling works on each system, and its memory."""
    works = [work for work in report.works if work in OF_PAGE and report.at(OURS, work)]
    lines = []
    for title, cell in (
        ("CPU of the proxy per request, ms (times the bare relay's)", _cost),
        ("p50 / p99 to the first byte, ms", _waits),
    ):
        systems = [name for name in report.figures if name != "direct" or cell is _waits]
        lines += [f"{title}:", "", f"| work | {' | '.join(systems)} |", f"|---|{'---|' * len(systems)}"]
        for work in works:
            if work in BRIEF and cell is _cost:  # the page's first table has it
                continue
            cells = [
                cell(figures) if (figures := report.at(name, work)) and figures.answers else "" for name in systems
            ]
            lines.append(f"| {report.works[work]} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["| | " + " | ".join(report.systems) + " |", f"|---|{'---|' * len(report.systems)}"]
    for field, title in (("ready_seconds", "ready, s"), ("rest_mb", "MB at rest"), ("after_mb", "MB afterwards")):
        lines.append(
            f"| {title} | " + " | ".join(f"{figures[field]:.3g}" for figures in report.systems.values()) + " |"
        )
    return "\n".join(lines)


def brief(report: Report) -> str:
    """Return the page's first table: the commonest works, with the proxy's CPU per request."""
    works = [work for work in BRIEF if report.at(OURS, work)]
    lines = [f"Measured {machine_line(report)}.", ""]
    lines += [
        f"| CPU per request, ms | {' | '.join(report.works[work] for work in works)} |",
        f"|---|{'---|' * len(works)}",
    ]
    for name in report.figures:
        cells = [_cost(figures) if (figures := report.at(name, work)) and figures.answers else "" for work in works]
        if name != "direct" and any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cost(figures: Figures) -> str:
    ratio = figures.ratios.get("cpu")
    return f"{figures.cpu_ms:.2f} ({ratio:.1f})" if ratio else f"{figures.cpu_ms:.2f}"


def _waits(figures: Figures) -> str:
    lost = figures.failed + figures.missing
    waits = f"{figures.first_p50_ms:.1f} / {figures.first_p99_ms:.1f}"
    return f"{waits}, {lost} of {lost + figures.answers} failed" if lost else waits
