"""Traffic: the figures of all requests, by minute, quarter of an hour and hour, for the operator.

``features/traffic/feature.py`` adds them up, the store holds them for all workers, and
``features/traffic/traffic_reader.py`` reads a window: of all requests, of one model or of one tenant. Times are counted
between fixed bounds, so that the counts of workers and of minutes add up, and a quantile can be read from any sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import add
from typing import NamedTuple

from tidemark.core.frozen import frozen

_STEPS = ("1", "1.2", "1.5", "2", "2.5", "3", "4", "5", "6", "8")
OVERHEAD_BOUNDS: Sequence[float] = (*(float(f"{step}e{power}") for power in range(-4, 1) for step in _STEPS), 10.0)
"""Seconds, from 0.1 ms to 10 s; each bound is at most a third above the one before."""
FIRST_BYTE_BOUNDS: Sequence[float] = (*(float(f"{step}e{power}") for power in range(-2, 2) for step in _STEPS), 100.0)
"""Seconds, from 10 ms to 100 s, in the same steps."""
MAX_NAMES = 50
"""The most models, and the most tenants, with figures of their own: the first ones that got an answer."""
OTHER = "other"
"""The name of all others. Clients choose the names of models, and with some upstreams their own."""


@dataclass(slots=True)
class TrafficFigures:
    """The figures of the requests of some time. It is mutable: figures are added to it."""

    requests: int = 0
    tokens_before: int = 0
    """Tokens of the requests as clients sent them."""
    tokens_after: int = 0
    """Tokens of the requests as they were forwarded."""
    tokens_saved: int = 0
    """Tokens by which forwarded requests were smaller than what clients sent."""
    compacted: int = 0
    """Requests for which a summary was made or swapped in."""
    forced: int = 0
    """Requests whose client asked for a summary."""
    failed: int = 0
    """Requests whose summary could not be made."""
    summarizer_failures: int = 0
    shed: int = 0
    """Requests that were refused because a worker had as many as ``limits`` allows."""
    cached_tokens: int = 0
    """Input tokens that upstreams took from their prompt caches, by their own count."""
    overheads: list[int] = field(default_factory=lambda: [0] * (len(OVERHEAD_BOUNDS) + 1))
    """The number of overheads up to each of ``OVERHEAD_BOUNDS`` and above the one before, and last above all."""
    first_bytes: list[int] = field(default_factory=lambda: [0] * (len(FIRST_BYTE_BOUNDS) + 1))
    """The same of the times until upstreams began to answer, between ``FIRST_BYTE_BOUNDS``."""

    def add(self, other: TrafficFigures) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in TIMES:
            self.add_times(name, getattr(other, name))

    def add_times(self, name: str, counts: Sequence[int]) -> None:
        """Add counts between the bounds of one of ``TIMES``."""
        setattr(self, name, [*map(add, getattr(self, name), counts)])

    def overhead_quantile(self, share: float) -> float | None:
        """Return the seconds that this share of the overheads does not exceed; None if there is none.

        :param share: above 0, at most 1
        """
        return _quantile(self.overheads, OVERHEAD_BOUNDS, share)

    def first_byte_quantile(self, share: float) -> float | None:
        """Return the seconds within which this share of upstreams' answers began; None if there is none.

        :param share: above 0, at most 1
        """
        return _quantile(self.first_bytes, FIRST_BYTE_BOUNDS, share)


TIMES: Mapping[str, Sequence[float]] = {"overheads": OVERHEAD_BOUNDS, "first_bytes": FIRST_BYTE_BOUNDS}
"""The bounds of the figures that are counts between bounds, by their names."""
COUNTS: Sequence[str] = tuple(item.name for item in fields(TrafficFigures) if item.name not in TIMES)
"""The names of all other figures."""


def _quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Return a quantile. Between two bounds times count as spread evenly, as in Prometheus' ``histogram_quantile``."""
    rank = share * sum(counts)
    below, lower = 0, 0.0
    for count, upper in zip(counts, bounds, strict=False):
        if count and below + count >= rank:
            return lower + (upper - lower) * (rank - below) / count
        below, lower = below + count, upper
    return bounds[-1] if counts[-1] else None


class TrafficCell(NamedTuple):
    """What figures belong to."""

    minute: int
    """Since 1970."""
    model: str = ""
    """Empty if the figures are no model's: they are among those of all requests alone."""
    tenant: str = ""
    """An owner of conversations, or empty as before."""


@frozen
class TrafficLevel:
    """One length of the periods that figures are stored for."""

    name: str
    """One letter, for the store's key."""
    seconds: int
    """The length of a period, whole minutes."""
    longest_window: int
    """The longest window in seconds that is read in these periods."""
    keep_seconds: int
    """How long a period is stored after it was last written."""


MINUTES = TrafficLevel("m", 60, 3 * 3600, 4 * 3600)
QUARTERS = TrafficLevel("q", 900, 25 * 3600, 26 * 3600)
HOURS = TrafficLevel("h", 3600, 7 * 86_400, 8 * 86_400)
LEVELS = (MINUTES, QUARTERS, HOURS)
MIN_WINDOW_SECONDS = 60
MAX_WINDOW_SECONDS = HOURS.longest_window


def level_for(window_seconds: int) -> TrafficLevel:
    """Return the level that a window is read from: the finest one that is stored for so long."""
    return next(level for level in LEVELS if window_seconds <= level.longest_window)


@frozen
class TrafficPoint:
    """The figures of one period."""

    start: int
    """Unix time, seconds."""
    figures: TrafficFigures


@frozen
class Traffic:
    """The figures of a window that ends now."""

    window_seconds: int
    total: TrafficFigures
    points: Sequence[TrafficPoint]
    """One for each period, oldest first, also for those without requests; the last period is not over."""
    models: Sequence[str] = ()
    """Those with figures of their own in the window."""
    tenants: Sequence[str] = ()
