"""Looks at how a streamed reply opens, and loses none of it.

Some servers refuse a request in the first events of an answer of status 200.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from tidemark.core.errors import UpstreamError
from tidemark.core.ports import UpstreamReply

OpeningError = Callable[[bytes], bytes | None]
"""``Dialect.opening_error``."""
HOLD_SECONDS = 1.0
"""The longest wait for the event that shows whether a reply begins. Refusals come sooner."""
HOLD_BYTES = 262_144
"""The most of an opening that is held. OpenAI's events repeat the request's instructions and tools."""


class OpenedReply:
    """An ``UpstreamReply`` of which the first pieces were read already."""

    def __init__(self, reply: UpstreamReply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.first: list[bytes] = []
        """The pieces that were read."""
        self._reply = reply
        self._pieces = reply.body()
        self._next: asyncio.Future[bytes] | None = None
        """The piece that is waited for."""

    async def read(self, seconds: float) -> bool:
        """Wait for the next piece, and return whether it came.

        The end of the body and its errors are left for ``body``.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._pieces))
        await asyncio.wait((self._next,), timeout=seconds)
        if not self._next.done() or self._next.exception() is not None:
            return False
        self.first.append(self._next.result())
        self._next = None
        return True

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body's bytes, those that were read first."""
        for piece in self.first:
            yield piece
        if self._next is not None:
            try:
                yield await self._next
            except StopAsyncIteration:
                return
        async for piece in self._pieces:
            yield piece

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()  # does nothing to one that is done, whose error nobody else reads
            with suppress(asyncio.CancelledError, StopAsyncIteration, UpstreamError):
                await self._next
        await self._reply.close()


async def read_opening(reply: UpstreamReply, opening_error: OpeningError) -> tuple[OpenedReply, bytes | None]:
    """Read the first events of a stream.

    :returns: the reply with all its events; the error if the stream says nothing else, empty if the reply has begun,
        None if that is not known after a second
    """
    opened = OpenedReply(reply)
    until = asyncio.get_running_loop().time() + HOLD_SECONDS
    try:
        while (seconds := until - asyncio.get_running_loop().time()) > 0 and await opened.read(seconds):
            error = opening_error(b"".join(opened.first))
            if error is not None or sum(map(len, opened.first)) >= HOLD_BYTES:
                return opened, error
    except BaseException:  # cancelled, too: no other code has the reply
        await opened.close()
        raise
    return opened, None
