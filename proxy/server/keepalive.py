"""Keep-alive: comments that keep a stream's connection open while nothing comes from the upstream yet.

Source: WHATWG HTML, section 9.2.7: a comment about every 15 seconds keeps proxies from dropping a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from proxy.server.asgi import Response

Lines = Sequence[tuple[bytes, bytes]]
COMMENT = b": keep-alive\n\n"
EVENT_STREAM: Lines = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
FIRST = 5 / 3
"""The first comment comes this much later than each further one: at 25 s where the others are 15 s apart. It settles
the status, so it waits as long as it can for an upstream that may still refuse, and goes out before the strictest
balancers (Heroku, Google Cloud) drop a silent connection at 30 s."""


class KeepAlive:
    """Comments on a response until its first byte. Costs one timer where nothing takes long.

    While a summary is made that the client has to wait for, the comments say so, and the first one comes after
    ``notice`` seconds (FR-1.6): a person who waits wants to know for what.

    The first comment settles status and headers: the upstream's own where they are there already, else 200; what
    goes wrong after it is told by an event. The headers say what was done to the request (promise 9). Where that was
    still being done, it is told in a comment as soon as it is known.
    """

    def __init__(self, response: Response, seconds: float, facts: Callable[[], Lines], *, notice: float = 0.0) -> None:
        self.status = 200
        self.lines = EVENT_STREAM
        """What the first comment opens the response with, beside the facts."""
        self._response = response
        self._seconds = seconds
        self._facts = facts
        self._notice = notice
        self._comment = COMMENT
        self._first = 0.0
        """When the first comment is due, by the loop's clock."""
        self._untold = False
        """Whether the response was opened without the facts."""
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._stopped = False

    async def __aenter__(self) -> Self:
        if self._seconds > 0:
            self._first = asyncio.get_running_loop().time() + self._seconds * FIRST
            self._wake_at(self._first)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                await self.stop()
        finally:
            self._quiet()
            if self._sending is not None:  # cancelled, if only just now: nobody is there to wait for
                self._sending.cancel()

    def compacting(self, messages: int, tokens: int) -> None:
        """The client waits for a summary now: of so many messages, of so many tokens."""
        if self._seconds > 0 and self._notice > 0:
            self._comment = f": compacting {messages:,} messages ({tokens:,} tokens)\n\n".encode()
            if self._sending is None:
                self._wake_at(min(self._first, asyncio.get_running_loop().time() + self._notice))

    def compacted(self) -> None:
        """It does no longer."""
        if self._comment is not COMMENT:
            self._comment = COMMENT
            if self._sending is None:
                self._wake_at(self._first)

    async def stop(self) -> None:
        """No comment comes after this has returned, and none is cut short."""
        self._quiet()
        if self._sending is not None:
            await asyncio.wait((self._sending,))
            self._sending = None
        facts = self._facts() if self._untold else ()
        if facts:
            self._untold = False
            await self._response.piece(b"".join(b": %b: %b\n" % line for line in facts) + b"\n")

    def _quiet(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._stopped else asyncio.get_running_loop().call_at(when, self._wake)

    def _wake(self) -> None:
        self._sending = asyncio.create_task(self._commented())

    async def _commented(self) -> None:
        with suppress(OSError):  # the client is gone; whoever listens for that will know
            if self._response.status is None:
                facts = self._facts()
                self._untold = not facts
                await self._response.start(self.status, [*self.lines, *facts])
            await self._response.piece(self._comment)
            self._wake_at(asyncio.get_running_loop().time() + self._seconds)
