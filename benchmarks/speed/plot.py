"""Draws SVG plots: cost by the length of the history, a line for each system, both scales logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.speed.figures import Figures, Report

LENGTHS = {"small": 1, "history-10": 10, "history-100": 100, "history-300": 300, "history-1000": 1000}
"""The works, with the messages of their histories."""
WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 40, 48
COLOURS = ("#0b62a4", "#7a7a7a", "#c2452d", "#3a8f3a", "#8e5ea2", "#b8860b", "#2b8a8a", "#a0436e", "#555599")
FONT = 'font-family="sans-serif" font-size="13"'
FIRST = ("tidemark", "floor")
Points = list[tuple[float, float]]


def all_plots(report: Report) -> dict[str, str]:
    """Return the plots by name; none where no history was measured."""
    drawn = {
        "cpu": drawing("CPU of the proxy per request, ms", series(report, lambda figures: figures.cpu_ms)),
        "first-byte": drawing("p50 to the first byte, ms", series(report, lambda figures: figures.first_p50_ms)),
    }
    return {name: svg for name, svg in drawn.items() if svg}


def series(report: Report, take: Callable[[Figures], float]) -> dict[str, Points]:
    """Return the points of each system, with Tidemark and the bare relay first."""
    lines = {}
    for system in sorted(report.figures, key=lambda name: (name not in FIRST, name)):
        by_length = [(length, report.at(system, work)) for work, length in LENGTHS.items()]
        points = [
            (float(length), take(figures))
            for length, figures in by_length
            if figures and figures.answers and take(figures) > 0
        ]
        if len(points) > 1 and system != "direct":
            lines[system] = points
    return lines


def drawing(title: str, lines: Mapping[str, Points]) -> str:
    """Return an SVG document, or an empty text without points."""
    values = [value for points in lines.values() for _, value in points]
    if not values:
        return ""
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(length: float) -> float:
        return LEFT + wide * math.log10(length) / 3

    def down(value: float) -> float:
        return TOP + tall * (1 - math.log10(value / low) / math.log10(high / low))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}, against messages in the history</text>',
        *_grid(across, down, low, high),
    ]
    for (name, points), colour in zip(lines.items(), COLOURS * 2, strict=False):
        places = [(across(length), down(value)) for length, value in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        width = 3 if name == "tidemark" else 1.5
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return "\n".join([*parts, *_names(lines, down), "</svg>", ""])


def _grid(across: Callable[[float], float], down: Callable[[float], float], low: float, high: float) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for length in (1, 10, 100, 1000):
        x = across(length)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{length:,}</text>')
    value = low
    while value <= high * 1.001:
        y = down(value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        value *= 10
    return parts


def _names(lines: Mapping[str, Points], down: Callable[[float], float]) -> list[str]:
    """Place each line's name at its end, apart from other names."""
    ends = sorted((down(points[-1][1]), name) for name, points in lines.items())
    colours: Sequence[str] = COLOURS * 2
    places, parts, lowest = list(lines), [], 0.0
    for wanted, name in ends:
        lowest = max(wanted, lowest + 16)
        colour = colours[places.index(name)]
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{lowest + 4:.1f}" fill="{colour}">{escape(name)}</text>')
    return parts
