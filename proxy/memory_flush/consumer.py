"""What a consumer is, and how long is waited between attempts. The courier calls it; three files implement it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from proxy.core.ports import FlushEntry


class Consumer(Protocol):
    """Somebody who wants what leaves the context."""

    @property
    def name(self) -> str:
        """Of its group in the queue; the same in all processes and after every start."""
        ...

    async def deliver(self, entry: FlushEntry, attempt: int) -> None:
        """Take an entry. It may come more than once, always with the same key.

        :param attempt: 1 at first
        :raises FlushRefused: it is a dead letter at once
        :raises Exception: it is offered again
        """
        ...

    async def aclose(self) -> None:
        """Give back what it holds open."""
        ...


@dataclass(frozen=True, slots=True)
class Waits:
    """When an entry that was not taken is offered again, and how often; seconds."""

    first: float = 1.0
    longest: float = 300.0
    attempts: int = 10
    """The default waits are 1, 2, 4 ... 256 seconds, nine minutes in all: a restart or a deployment of a consumer."""

    def before(self, attempt: int, asked: float = 0.0) -> float:
        """Seconds until the attempt after this one.

        :param asked: what the consumer asked for itself (``Retry-After``); no longer than the longest wait
        """
        return min(max(self.first * 2.0 ** min(attempt - 1, 30), asked), self.longest)
