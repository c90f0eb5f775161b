"""Callers of the upstream, and readers of its replies."""

from __future__ import annotations

from tidemark.core.ports import Caller, UpstreamReply
from tidemark.server.headers import forwarded_lines


def calling(*headers: tuple[str, str], fingerprint: bytes = b"alice") -> Caller:
    """A caller who sent these headers, as the edge lets them through."""
    return Caller(fingerprint, forwarded_lines((name.encode(), value.encode()) for name, value in headers))


async def collect(reply: UpstreamReply, into: list[bytes]) -> None:
    """Read a body; what came before a failure is kept in ``into``."""
    async for piece in reply.body():
        into.append(piece)  # noqa: PERF401 - extend() would keep nothing when the body fails


async def everything(reply: UpstreamReply) -> bytes:
    """The whole body."""
    return b"".join([piece async for piece in reply.body()])
