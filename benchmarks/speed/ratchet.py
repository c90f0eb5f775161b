"""Holds the instructions of a small request to the figure that was accepted last.

``make bench-instructions ARGS=--check`` ends with exit code 1 if a request takes more than 1 % above it, and
``make bench-instructions ARGS='--accept "why"'`` accepts what it takes now. ``benchmarks/history.jsonl`` keeps all
figures that were accepted, a line each, and ``--plot FILE`` draws them.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.sax.saxutils import escape

HISTORY = Path(__file__).parents[1] / "history.jsonl"
MOST_RISE = 1.01
COUNTS = 5
"""How often a request is counted at most: timers and threads can only add to the least count."""
WIDTH, HEIGHT, MARGIN = 760, 320, 60


@dataclass(frozen=True)
class Accepted:
    """One figure, and why it was accepted."""

    date: str
    commit: str
    """The commit that the figure was counted on, or the last one before it."""
    python: str
    """Another Python has other instructions, so it is no rise."""
    processor: str
    """Its maker, for the same reason: the C library copies and compares bytes in other ways on another one."""
    thousands: float
    why: str


def history(path: Path = HISTORY) -> list[Accepted]:
    """Return all accepted figures, the oldest first."""
    return [Accepted(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def maker(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the maker of this machine's processor, such as GenuineIntel; empty if the system does not say."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def least(count: Callable[[], float], bound: float = 0.0) -> float:
    """Return the least of several counts; one within the bound is enough.

    :param count: returns the thousands of instructions
    """
    thousands = count()
    for _ in range(COUNTS - 1):
        if thousands <= bound:
            break
        thousands = min(thousands, count())
    return thousands


def check(count: Callable[[], float], figures: Sequence[Accepted]) -> str:
    """Return what is wrong with the figure of now; an empty text if nothing is.

    :param figures: those that were accepted, the newest last
    """
    version, processor = platform.python_version(), maker()
    same = [figure for figure in figures if (figure.python, figure.processor) == (version, processor)]
    if not same:
        print(f"No figure of Python {version} on {processor} was accepted, so there is nothing to compare with.")
        return ""
    last = same[-1]
    thousands = least(count, last.thousands * MOST_RISE)
    print(f"A small request takes {thousands:,.0f} thousand instructions.")
    print(f"Accepted are {last.thousands:,.0f}: {last.why}.")
    rise = thousands / last.thousands - 1
    if rise <= MOST_RISE - 1:
        return ""
    mend = """Find what costs it, or accept it: make bench-instructions ARGS='--accept "why"'"""
    return f"That is {100 * rise:.1f} % more, and 1 % is allowed. {mend}"


def accept(count: Callable[[], float], why: str, path: Path = HISTORY) -> Accepted:
    """Add the figure of now to the history."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout  # noqa: S607
    today = datetime.now(UTC).date().isoformat()
    figure = Accepted(today, commit.strip(), platform.python_version(), maker(), round(least(count), 1), why)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(figure)) + "\n")
    return figure


def plot(figures: Sequence[Accepted]) -> str:
    """Return an SVG of all figures, the oldest at the left; each says its commit and reason when pointed at."""
    top = 1.1 * max(figure.thousands for figure in figures)
    step = (WIDTH - 2 * MARGIN) / max(1, len(figures) - 1)

    def down(thousands: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * thousands / top

    places = [(MARGIN + step * place, down(figure.thousands), figure) for place, figure in enumerate(figures)]
    line = " ".join(f"{across:.1f},{height:.1f}" for across, height, _ in places)
    dots = "".join(
        f'<circle cx="{across:.1f}" cy="{height:.1f}" r="4" fill="#0b62a4">'
        f"<title>{figure.date} {figure.commit}: {figure.thousands:,.0f} thousand. {escape(figure.why)}</title></circle>"
        for across, height, figure in places
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="13"><text x="{MARGIN}" y="24">Thousands of instructions of a small request</text>'
        f'<text x="8" y="{down(figures[-1].thousands):.1f}">{figures[-1].thousands:,.0f}</text>'
        f'<path d="M{MARGIN} {HEIGHT - MARGIN}H{WIDTH - MARGIN}" stroke="#7a7a7a"/>'
        f'<polyline points="{line}" fill="none" stroke="#0b62a4"/>{dots}</svg>\n'
    )
