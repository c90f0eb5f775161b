"""Gives large requests permits to be worked on, so that no small request and no other tenant waits for them.

``endpoints/dialect.py`` takes a permit before it parses a large body, and ends it when the request goes upstream.
Parsing, hashing and counting 400 KB that are new take some 40 ms of CPU. Two hundred of them at once would keep the
event loop and every core busy, and with it every small request waiting, for seconds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tidemark.core.errors import Overloaded
from tidemark.core.events import ShedReason
from tidemark.server.waiting import WaitingLine

LARGE_BYTES = 16_384
"""A body above it needs a permit. Below it a request is worked on at once, which takes two milliseconds at most."""
MOST_AT_ONCE = 4
"""The most permits at one moment on a machine with many cores, where Python's lock is the bound."""
PERMIT_SECONDS = 0.25
"""The longest time of a permit. What takes longer mostly waits: for a provider's list of models, or for another request
of the conversation."""


class Permit:
    """The permit of one request. Mutable: whether it has ended."""

    __slots__ = ("_permits", "_timer")

    def __init__(self, permits: Permits, seconds: float) -> None:
        self._permits: Permits | None = permits
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Let the next request begin; a second call does nothing."""
        permits, self._permits = self._permits, None
        if permits is not None:
            self._timer.cancel()
            permits.give_back()


class Permits:
    """The permits of one worker. Mutable: how many are free, and who waits.

    :param most_waiting: the most requests that wait; infinite for no bound
    :param refusal: makes the error for one that may not wait
    :param at_once: the permits at one moment; None for as many as the machine's cores allow
    :param seconds: how long a permit lasts at most
    """

    def __init__(
        self,
        most_waiting: float,
        refusal: Callable[[ShedReason], Overloaded],
        at_once: int | None = None,
        seconds: float = PERMIT_SECONDS,
    ) -> None:
        self._seconds = seconds
        self._free = at_once or permits_at_once(os.cpu_count() or 1)
        self._line = WaitingLine(most_waiting, refusal, self.give_back)

    @property
    def waiting(self) -> int:
        return len(self._line)

    async def take(self, tenant: bytes, size: int) -> Permit:
        """Wait for a permit, and take it.

        :param tenant: whose request it is; tenants get equal shares
        :param size: bytes of the body, which stand for the work
        :raises Overloaded: too many wait
        """
        if self._free > 0:
            self._free -= 1
        else:
            await self._line.wait(tenant, cost=size)
        return Permit(self, self._seconds)

    def give_back(self) -> None:
        """Give a permit that has ended to the next request."""
        if not self._line.call_next():
            self._free += 1


def permits_at_once(cores: int) -> int:
    """Return how many permits there are at one moment: half of the cores.

    Counting runs beside Python's lock, so each request can use a core for itself. The event loop needs one as well, and
    so do store and clients. On two cores, two permits in place of one doubled what a small request took.
    """
    return max(1, min(MOST_AT_ONCE, cores // 2))
