"""The values that edge and pipeline exchange: what the client asks of Tidemark, and what became of a request.

Between ``http/``, which reads the one from request headers and writes the other as response headers, and
``pipeline/pipeline.py``, which walks the road in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from proxy.core.conversation.summary import PrefixSummary
from proxy.core.errors import TidemarkError
from proxy.core.planning.situation import Mode
from proxy.core.ports import Headers, UpstreamReply
from proxy.core.report import Report
from proxy.core.values import value
from proxy.pipeline.relay import PendingTurn

History = Literal["client", "stored"]


@value
class Controls:
    """What the client asks of Tidemark, by request headers."""

    mode: Mode = "auto"
    retention: int | None = None
    conversation: str | None = None
    history: History = "client"
    """Who has the conversation's earlier messages: the client, which sends them all, or the store."""
    acknowledge: bool = False
    """``X-Tidemark-Overflow: acknowledge``: send the request although it could not be compacted (FR-5.1.2)."""


@value
class Exchange:
    """An upstream's answer on its way, and what belongs to it."""

    reply: UpstreamReply
    turn: PendingTurn
    report: Report
    summary: PrefixSummary | None = None
    """The one that is in use now, if the store keeps it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was understood but not forwarded, or not answered; nothing of it was stored."""

    error: TidemarkError
    report: Report


class ReadReply:
    """An upstream's answer that has been read already."""

    def __init__(self, status: int, headers: Headers, data: bytes) -> None:
        self.status = status
        self.headers = headers
        self._data = data

    async def body(self) -> AsyncIterator[bytes]:
        """The bytes, in one piece."""
        yield self._data

    async def close(self) -> None:
        """Nothing is open any more."""
