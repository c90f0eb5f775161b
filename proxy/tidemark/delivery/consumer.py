"""Declares what a consumer is, and how long the courier waits between two attempts.

The courier calls consumers; ``daily.py``, ``webhook.py`` and ``entry_points.py`` implement them.
"""

from __future__ import annotations

from typing import Protocol

from tidemark.core.frozen import frozen
from tidemark.core.ports import FlushEntry


class Consumer(Protocol):
    """Receives what leaves the context."""

    @property
    def name(self) -> str:
        """The name of its group in the queue; the same in all processes and after every start."""
        ...

    async def deliver(self, entry: FlushEntry, attempt: int) -> None:
        """Take an entry. It may come more than once, always with the same key.

        :param attempt: 1 at first
        :raises FlushRefused: the entry becomes a dead letter at once
        :raises Exception: the entry is offered again
        """
        ...

    async def aclose(self) -> None:
        """Close connections and threads."""
        ...


@frozen
class RetryWaits:
    """Says when an entry is offered again that its consumer did not take, and how often; times in seconds."""

    first: float = 1.0
    longest: float = 300.0
    attempts: int = 10
    """Attempts in all. The default waits are 1, 2, 4 ... 256 seconds, nine minutes in all, which covers a restart or a
    deployment of a consumer."""

    def before(self, attempt: int, retry_after: float = 0.0) -> float:
        """Return the seconds until the attempt after ``attempt``.

        :param retry_after: what the consumer asked for (``Retry-After``); no wait is longer than the longest
        """
        return min(max(self.first * 2.0 ** min(attempt - 1, 30), retry_after), self.longest)
