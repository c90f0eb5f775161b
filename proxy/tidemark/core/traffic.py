"""Traffic: the figures of all requests, by minute, quarter of an hour and hour, for the operator.

``features/traffic/feature.py`` adds them up, the store holds them for all workers, and
``features/traffic/traffic_reader.py`` reads a window. Overheads are counted between fixed bounds, so that the counts of
workers and of minutes add up, and a quantile can be read from any sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from tidemark.core.frozen import frozen

_STEPS = ("1", "1.2", "1.5", "2", "2.5", "3", "4", "5", "6", "8")
OVERHEAD_BOUNDS: Sequence[float] = (*(float(f"{step}e{power}") for power in range(-4, 1) for step in _STEPS), 10.0)
"""Seconds, from 0.1 ms to 10 s; each bound is at most a third above the one before."""


def _no_overheads() -> list[int]:
    return [0] * (len(OVERHEAD_BOUNDS) + 1)


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
    overheads: list[int] = field(default_factory=_no_overheads)
    """The number of overheads up to each of ``OVERHEAD_BOUNDS`` and above the one before, and last above all."""

    def add(self, other: TrafficFigures) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.overheads = [own + more for own, more in zip(self.overheads, other.overheads, strict=True)]

    def overhead_quantile(self, share: float) -> float | None:
        """Return the seconds that this share of the overheads does not exceed; None if there is none.

        Within two bounds the overheads count as spread evenly, as in Prometheus' ``histogram_quantile``.

        :param share: above 0, at most 1
        """
        rank = share * sum(self.overheads)
        below, lower = 0, 0.0
        for count, upper in zip(self.overheads, OVERHEAD_BOUNDS, strict=False):
            if count and below + count >= rank:
                return lower + (upper - lower) * (rank - below) / count
            below, lower = below + count, upper
        return OVERHEAD_BOUNDS[-1] if self.overheads[-1] else None


COUNTS: Sequence[str] = tuple(item.name for item in fields(TrafficFigures) if item.name != "overheads")
"""The names of all figures but the overheads."""


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
