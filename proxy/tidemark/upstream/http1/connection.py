"""One connection to a server: it writes a request at once, and gives the answer's bytes to an ``HttpAnswer``.

Third step of the HTTP client, between ``opening`` and ``answer``. It carries one exchange at a time. It becomes idle
only after an answer that was read to its end, with nothing behind it and nothing of the request left to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import cast

from tidemark.core.ports import Upload
from tidemark.upstream.http1.answer import HttpAnswer
from tidemark.upstream.http1.failures import ConnectionGone, UploadBroken
from tidemark.upstream.http1.target import Origin
from tidemark.upstream.http1.uploading import upload_to

JOINED_BYTES = 65_536
"""A body up to this size goes out in one write with its head. Copying more costs more than a second write."""
WHOLE_BYTES = 2**20
"""Longer bodies are written piece by piece, with other requests in between."""
PIECE_BYTES = 2**18


class ConnectionState(Enum):
    """What a connection does now."""

    CONNECTING = "connecting"
    NEW = "new"
    """It is open and has carried nothing."""
    ACTIVE = "active"
    """A request is being sent, or its answer is being read."""
    IDLE = "idle"
    """It has carried an exchange, and may carry the next one."""
    CLOSED = "closed"
    """It is closed, or about to be: the server has closed its side."""


# Looking a member up on its class costs more than all else of a check.
_CONNECTING, _NEW, _ACTIVE, _IDLE, _CLOSED = ConnectionState


class UpstreamConnection(asyncio.Protocol):
    """One connection to a server.

    Mutable: its state, the exchange under way, what is left to send of the request's body, and one timer.

    :param on_idle: called when the connection may carry another exchange
    :param on_lost: called when it is closed
    :param round_trip_seconds: to the server and back, as the connect took it; 0 if that is unknown
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        origin: Origin,
        on_idle: Callable[[UpstreamConnection], None],
        on_lost: Callable[[UpstreamConnection], None],
        round_trip_seconds: float = 0.0,
    ) -> None:
        self.origin = origin
        self._state = _CONNECTING
        self._exchanges = 0
        """Exchanges that are complete."""
        self._loop = loop
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._answer: HttpAnswer | None = None
        """The answer of the exchange under way; None in every state but ``ACTIVE``."""
        self._round_trip_seconds = round_trip_seconds
        self._unsent: memoryview | None = None
        self._write_paused = False
        self._writable: asyncio.Future[None] | None = None
        """What an upload waits for while the server takes no more."""
        self._upload: asyncio.Task[None] | None = None
        self._answer_seconds = 0.0
        """The time that the server has for its answer after each piece of an upload."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = self._due = 0.0

    def __repr__(self) -> str:
        exchanges = f"{self._exchanges} exchange{'' if self._exchanges == 1 else 's'}"
        return f"<UpstreamConnection to {self.origin} is {self._state.value} after {exchanges}>"

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def is_available(self) -> bool:
        """Whether a request may be sent over it."""
        return self._state is _IDLE or self._state is _NEW

    async def ask(self, head: bytes, body: bytes | Upload | None, due: float, *, bodiless: bool = False) -> HttpAnswer:
        """Send a request and wait for the head of its answer; cancelling the call closes the connection.

        :param due: when to stop waiting, by the loop's clock; each piece of an upload gives the same time again
        :param bodiless: whether the answer has no body, as that to a HEAD
        :raises OSError: there was no answer, or none until then
        """
        if self._state is not _IDLE and self._state is not _NEW:
            raise ConnectionGone("closed before the request", reused=self._exchanges > 0)
        self._state = _ACTIVE
        answer = self._answer = HttpAnswer(self, self._loop, bodiless=bodiless)
        try:
            if isinstance(body, Upload):
                self._answer_seconds = due - self._loop.time()
                self._send(head, b"")
                self._upload = self._loop.create_task(self._send_upload(body))
            else:
                self._send(head, body or b"")
            await answer.wait_for_more(due)
            answer.require_head()
        except BaseException:  # cancelled, too: what comes now belongs to no request, so the connection is closed
            answer.close()
            raise
        return answer

    def abort(self) -> None:
        """Close at once; an answer that is not complete fails."""
        if self._transport is not None:
            self._transport.abort()
        answer = self._shut()
        if answer is not None:
            answer.fail(ConnectionAbortedError("given up"))

    # What the answer calls.

    def watch(self, due: float) -> None:
        """Fail the answer at ``due`` if a caller still waits for it then.

        The timer fires when it was first set to, and is set anew only if that is too late. Mostly it is never touched
        again, while a timer for every piece costs as much as the piece.
        """
        self._due = due
        if self._timer is None or due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self._loop.call_at(due, self._check_due)

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and self._state is not _CLOSED:
            self._transport.resume_reading()

    # What an upload calls.

    async def wait_until_writable(self) -> None:
        """Wait while the server takes no more."""
        while self._write_paused and self._state is not _CLOSED:
            self._writable = self._loop.create_future()
            await self._writable

    def write_piece(self, data: bytes) -> None:
        """Write, and give the server the whole of its time again."""
        if self._transport is None or self._state is _CLOSED:
            raise ConnectionGone("closed during the upload", reused=False)
        self._transport.write(data)
        self._due = self._loop.time() + self._answer_seconds

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not derived from it
        self._state = _NEW
        # Under TLS the bytes that have come are buffered once more, encrypted. While reading is paused none may be
        # beyond one read of the socket: uvloop forgets them when the server closes without saying so within TLS.
        limit = getattr(transport, "set_read_buffer_limits", None)
        if limit is not None:
            limit(high=1)

    def data_received(self, data: bytes) -> None:
        """Called with what has come; bytes without a request end the connection."""
        answer = self._answer
        if answer is None:
            self.abort()
            return
        if answer.feed(data):
            self._answer = None
            if answer.keeps_connection and self._state is _ACTIVE and self._is_sent():
                self._exchanges += 1
                self._state = _IDLE
                self._on_idle(self)
            else:
                self.abort()

    def eof_received(self) -> None:
        """Called when the server has closed its side: no exchange can begin or go on."""
        answer = self._shut()
        if answer is not None:
            answer.end(None, reused=self._exchanges > 0, round_trip_seconds=self._round_trip_seconds)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._shut()
        if answer is not None:
            answer.end(exc, reused=self._exchanges > 0, round_trip_seconds=self._round_trip_seconds)
        self._transport = None
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Called when the server takes no more for now."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Called when the server takes more again."""
        self._write_paused = False
        self._release_upload()
        self._push()

    def _send(self, head: bytes, body: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        if len(body) <= JOINED_BYTES:
            transport.write(head + body)
            return
        transport.write(head)
        if len(body) <= WHOLE_BYTES:
            transport.write(body)
        else:
            self._unsent = memoryview(body)
            self._push()

    async def _send_upload(self, upload: Upload) -> None:
        """Send a body while it arrives; one that breaks off fails the answer."""
        try:
            await upload_to(self, upload)
        except OSError as error:
            self._upload, answer = None, self._answer
            if answer is not None:
                answer.fail(UploadBroken(f"the body broke off: {error!r}"))
            self.abort()
        self._upload = None

    def _release_upload(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def _push(self) -> None:
        """Write the next piece of a long body, and the one after it in the loop's next turn."""
        unsent = self._unsent
        if unsent is None or self._write_paused or self._transport is None:
            return
        self._unsent = unsent[PIECE_BYTES:] if len(unsent) > PIECE_BYTES else None
        self._transport.write(unsent[:PIECE_BYTES])
        if self._unsent is not None and not self._write_paused:
            self._loop.call_soon(self._push)

    def _is_sent(self) -> bool:
        """Whether the whole request is sent: a server that has answered already may never read the rest."""
        transport = self._transport
        is_written = self._unsent is None and self._upload is None
        return is_written and transport is not None and not transport.get_write_buffer_size()

    def _check_due(self) -> None:
        self._timer = None
        answer = self._answer
        if answer is None or not answer.is_awaited:
            return
        if self._due <= self._loop.time():
            answer.fail(TimeoutError("silent for too long"))
            self.abort()
        else:
            self.watch(self._due)

    def _shut(self) -> HttpAnswer | None:
        """Allow no further exchange, and return the answer of the one under way."""
        self._state = _CLOSED
        self._unsent = None
        if self._upload is not None:
            self._upload.cancel()
            self._upload = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        answer, self._answer = self._answer, None
        return answer
