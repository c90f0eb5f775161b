"""Sends comments that keep a stream's connection open while the client waits for the first byte.

The chat endpoint opens it around every streamed request. Source: WHATWG HTML, section 9.2.7: a comment about every
15 seconds keeps proxies from closing a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from tidemark.server.asgi import Response

Lines = Sequence[tuple[bytes, bytes]]
COMMENT = b": keep-alive\n\n"
EVENT_STREAM: Lines = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
FIRST = 5 / 3
"""How much later the first comment comes, as a factor: at 25 s if further ones are 15 s apart. It fixes the status,
so it waits as long as possible for an upstream that may still refuse. It comes before the strictest balancers (Heroku,
Google Cloud) close a silent connection at 30 s."""


class KeepAlive:
    """Sends comments on a response until its first byte; a quick request costs one timer only.

    While the client waits for a summary, the comments say so, and the first one comes after ``notice`` seconds
    (FR-1.6), because people want to know what they wait for.

    The first comment fixes status and headers: the upstream's own if they are there already, else 200. A later error
    is sent as an event. The headers report what was done to the request (promise 9). If that is not known yet, a
    comment reports it before the first byte.

    :param seconds: the time between two comments; 0 for no comments
    :param facts: returns the header lines of the report; empty while it is not known
    :param notice: seconds until the comment about a summary; 0 for no such comment
    """

    def __init__(self, response: Response, seconds: float, facts: Callable[[], Lines], *, notice: float = 0.0) -> None:
        self.status = 200
        self.lines = EVENT_STREAM
        """Header lines that the first comment sends, beside the report's."""
        self._response = response
        self._seconds = seconds
        self._facts = facts
        self._notice = notice
        self._comment = COMMENT
        self._first = 0.0
        """When the first comment is due, on the loop's clock."""
        self._owes_facts = False
        """Whether the headers were sent before the report was known."""
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
            self._cancel_timer()
            if self._sending is not None:  # the request was cancelled, and nobody waits for the comment
                self._sending.cancel()

    def on_summarizing(self, messages: int, tokens: int) -> None:
        """Say in the next comments that the client waits for a summary.

        :param messages: how many messages it will stand for
        :param tokens: their tokens
        """
        if self._seconds > 0 and self._notice > 0:
            self._comment = f": compacting {messages:,} messages ({tokens:,} tokens)\n\n".encode()
            if self._sending is None:
                self._wake_at(min(self._first, asyncio.get_running_loop().time() + self._notice))

    def on_summarized(self) -> None:
        """Send plain comments again, because the summary is made."""
        if self._comment is not COMMENT:
            self._comment = COMMENT
            if self._sending is None:
                self._wake_at(self._first)

    async def stop(self) -> None:
        """Stop sending comments; wait for one that is being sent, and send the report if it is still owed."""
        self._cancel_timer()
        if self._sending is not None:
            await asyncio.wait((self._sending,))
            self._sending = None
        facts = self._facts() if self._owes_facts else ()
        if facts:
            self._owes_facts = False
            await self._response.send_piece(b"".join(b": %b: %b\n" % line for line in facts) + b"\n")

    def _cancel_timer(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._stopped else asyncio.get_running_loop().call_at(when, self._wake)

    def _wake(self) -> None:
        self._sending = asyncio.create_task(self._send_comment())

    async def _send_comment(self) -> None:
        with suppress(OSError):  # the client has disconnected, which ``asgi.py`` notices
            if self._response.status is None:
                facts = self._facts()
                self._owes_facts = not facts
                await self._response.start(self.status, [*self.lines, *facts])
            await self._response.send_piece(self._comment)
            self._wake_at(asyncio.get_running_loop().time() + self._seconds)
