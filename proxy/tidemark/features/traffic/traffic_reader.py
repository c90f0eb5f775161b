"""Reads the figures of a window, for the operator.

``features/traffic/feature.py`` renders them as JSON, and the console shows them. The store has the figures of all
workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.core.traffic import (
    MAX_WINDOW_SECONDS,
    MIN_WINDOW_SECONDS,
    Traffic,
    TrafficFigures,
    TrafficPoint,
    level_for,
)
from tidemark.features.traffic.store import Part, RedisTraffic


@frozen
class TrafficReader:
    """Reads windows; holds no state."""

    store: RedisTraffic
    settle: Callable[[], Awaitable[None]]
    """Writes what this worker has not written yet, so that its own last second is not missing."""
    clock: Callable[[], float]
    """Unix time in seconds."""
    tenant_names: Callable[[], Mapping[str, str]]
    """Returns what tenants are called, by their owners; those of a provider's keys have no name."""

    async def read(self, window_seconds: int, part: Part | None = None) -> Traffic:
        """Return the figures of the last ``window_seconds``, in periods of a minute, a quarter of an hour or an hour.

        The periods are those of the clock: the first one begins up to one period after the window does, and the last
        one is not over.

        :param part: whose requests; None for all
        :raises InvalidRequest: the window is shorter than a minute or longer than a week
        :raises StoreUnavailable: the store did not answer in time
        """
        if not MIN_WINDOW_SECONDS <= window_seconds <= MAX_WINDOW_SECONDS:
            message = (
                f"window must be a number of seconds from {MIN_WINDOW_SECONDS} to {MAX_WINDOW_SECONDS}, "
                f"and is {str(window_seconds)[:20]}."
            )
            raise InvalidRequest(message, param="window")
        await self.settle()
        level = level_for(window_seconds)
        last = int(self.clock()) // level.seconds
        periods = range(last - -(-window_seconds // level.seconds) + 1, last + 1)
        stored = await self.store.read(level, periods[0], last, part)
        total = TrafficFigures()
        for figures in stored.periods.values():
            total.add(figures)
        points = [
            TrafficPoint(period * level.seconds, stored.periods.get(period) or TrafficFigures()) for period in periods
        ]
        return Traffic(window_seconds, total, points, stored.models, stored.tenants)

    async def tenant(self, text: str) -> Part:
        """Return the tenant that a name, a fingerprint or the beginning of one means.

        :raises InvalidRequest: several fingerprints begin so
        :raises StoreUnavailable: the store did not answer in time
        """
        for owner, name in self.tenant_names().items():
            if text in (name, owner):
                return Part("t", owner)
        await self.settle()
        tenants = await self.store.tenants()
        fitting = [text] if text in tenants else [owner for owner in tenants if owner.startswith(text)]
        if len(fitting) > 1:
            message = f"{len(fitting)} tenants begin with {text}. Name more of the fingerprint."
            raise InvalidRequest(message, param="tenant")
        return Part("t", fitting[0] if fitting else text)
