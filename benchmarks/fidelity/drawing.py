"""Draws figures as SVG: for each corpus the share of facts that survive, by the tokens that are left.

The share of the newest messages that stay word for word is drawn beside it, since either can be traded for the other.
``make bench-fidelity ARGS="--plot figures.svg"`` writes the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tidemark.fidelity import Figure

COLUMNS = 3
PANEL_WIDTH, PANEL_HEIGHT = 240, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 22, 30, 34
"""The free edges of a panel, for its labels."""
LEGEND_HEIGHT = 34

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, auto_reload=False
)


@dataclass(frozen=True, slots=True)
class Point:
    """One figure in a panel, in units of the drawing."""

    x: float
    y: float
    label: str
    """What a reader sees who points at it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The drawing of one corpus."""

    title: str
    x: int
    y: int
    survival: Sequence[Point]
    newest: Sequence[Point]
    """Empty where a summary alone was measured."""


def draw_figures(figures: Sequence[Figure], title: str) -> bytes:
    """Return an SVG with a panel for each corpus; it has all its styles, and follows light and dark."""
    corpora = list(dict.fromkeys(figure.corpus for figure in figures))
    panels = [
        _panel(number, [figure for figure in figures if figure.corpus == corpus and figure.kind == "all"])
        for number, corpus in enumerate(corpora)
    ]
    rows = -(-len(panels) // COLUMNS)
    size = (min(len(panels), COLUMNS) * PANEL_WIDTH, LEGEND_HEIGHT + rows * PANEL_HEIGHT)
    ticks = [(share, _x(share), _y(share)) for share in (0, 0.25, 0.5, 0.75, 1)]
    text = _environment.get_template("figures.svg").render(title=title, size=size, panels=panels, ticks=ticks)
    return text.encode()


def _panel(number: int, figures: Sequence[Figure]) -> Panel:
    row, column = divmod(number, COLUMNS)
    ordered = sorted(figures, key=lambda figure: figure.ratio)
    return Panel(
        figures[0].corpus,
        column * PANEL_WIDTH,
        LEGEND_HEIGHT + row * PANEL_HEIGHT,
        _points(ordered, lambda figure: figure.survival, "of the facts survive"),
        _points(ordered, lambda figure: figure.newest, "of the newest messages stay word for word"),
    )


def _points(figures: Sequence[Figure], share_of: Callable[[Figure], float | None], words: str) -> list[Point]:
    shares = [(figure.ratio, share_of(figure)) for figure in figures]
    return [
        Point(_x(ratio), _y(share), f"{share:.0%} {words} at {ratio:.0%} of the tokens")
        for ratio, share in shares
        if share is not None
    ]


def _x(share: float) -> float:
    return round(LEFT + share * (PANEL_WIDTH - LEFT - RIGHT), 1)


def _y(share: float) -> float:
    return round(PANEL_HEIGHT - BOTTOM - share * (PANEL_HEIGHT - TOP - BOTTOM), 1)
