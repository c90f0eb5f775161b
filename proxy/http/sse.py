"""Keep-alive: comments that keep a stream's connection open while nothing comes from the upstream yet.

Source: WHATWG HTML, section 9.2.7: a comment about every 15 seconds keeps proxies from dropping a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from proxy.http.asgi import Response

COMMENT = b": keep-alive\n\n"
EVENT_STREAM: Sequence[tuple[bytes, bytes]] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)


class KeepAlive:
    """Comments on a response until its first byte. Costs one timer where nothing takes long.

    The first comment settles the response's status as 200; what goes wrong after it is told by an event.
    """

    def __init__(self, response: Response, seconds: float) -> None:
        self._response = response
        self._seconds = seconds
        self._beat: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start waiting for the first pause that is too long."""
        if self._seconds > 0:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._wake)

    async def stop(self) -> None:
        """No comment comes after this has returned, and none is cut short."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._beat is not None:
            self._beat.cancel()
            with suppress(asyncio.CancelledError):
                await self._beat
            self._beat = None

    def _wake(self) -> None:
        self._beat = asyncio.create_task(self._comment())

    async def _comment(self) -> None:
        while True:
            if self._response.status is None:
                await self._response.start(200, EVENT_STREAM)
            await self._response.piece(COMMENT)
            await asyncio.sleep(self._seconds)
