"""One client's connection: it bounds silence in time, and answers each refusal with its reason.

``server`` makes one for each client; ``request_reader`` parses what comes. One timer watches how long a client is
silent.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tidemark.core.errors import HeadTooLarge, RequestTimedOut, ServerBusy, TidemarkError
from tidemark.server.asgi import ARRIVES_IN_PIECES, ON_SHUTDOWN
from tidemark.server.connections.bounds import (
    ENDING_SECONDS,
    HEAD_BYTES,
    LINGER_SECONDS,
    REST_SECONDS,
    SURPLUS_SECONDS,
)
from tidemark.server.connections.exchange import refusal
from tidemark.server.connections.load import RETRY_SECONDS
from tidemark.server.connections.request_reader import BUSY, TOO_LARGE, RequestReader

_LATE_HEAD = "The request's head was not complete after {seconds:g} s. Send it again."
_LATE_BODY = "Nothing more of the request's body came for {seconds:g} s. Send the request again."


class ClientConnection(RequestReader):
    """One client's connection. Mutable beside what is being read: how the connection is to end.

    Its parameters are those of ``RequestReader``.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.is_listed = False
        self._overhead_bytes = 0
        """Bytes since the last progress: of lines that are not complete, or of trailers."""
        self._pending_refusal: TidemarkError | None = None
        """The refusal that follows the answers of earlier requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        self._since = self.loop.time()
        self._load.list_idle(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop. Cancels the timer, which would keep the connection in memory."""
        super().connection_lost(exc)
        self._cancel_timer()
        self._load.end(self)

    # Silence. uvicorn sets a timer after every answer and cancels it at the next request. This timer stays: it fires
    # when it was first set to, and is set anew if the client has time left.

    def on_response_complete(self) -> None:
        """Called by uvicorn, and after an answer in one write."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._cancel_timer()
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._pending_refusal is not None:
            self._refuse_and_close(self._pending_refusal)
        else:
            self._since = self.loop.time()
            if not self.is_listed:
                self._load.list_idle(self)
            if self._in_pieces:
                self._in_pieces = False
                self._load.bodies.release(self)
                self._watch()
            elif self.timeout_keep_alive_task is None:
                self._watch()

    def _on_incomplete(self) -> None:
        """Bound the bytes of a request that is not complete, and the time for the rest of it."""
        self._in_pieces = True
        if self._progress:
            self._progress = False
            # The first piece of a head counts, unless it may be the rest of an earlier request for the most part.
            self._overhead_bytes = self._size if self._in_head and self._changes == 1 else 0
        else:
            self._overhead_bytes += self._size
        if self._overhead_bytes > HEAD_BYTES:
            self.refuse(HeadTooLarge(TOO_LARGE))
            return
        if self._in_head:
            if not self._split:
                self._split = True
                self._since = self.loop.time()
        elif not self.cycle.response_complete:
            self._since = self.loop.time()
            if ARRIVES_IN_PIECES in self.cycle.scope:  # its endpoint has taken what came before
                self._load.bodies.release(self)
            else:
                self._load.bodies.add(self, self._size)
        self._watch()

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The latest request; None if none has come."""
        return self.cycle

    def _due(self) -> float | None:
        """Return when the client's silence becomes too long; None while it waits for an answer."""
        bounds, cycle = self._load.bounds, self._latest
        if self._refused:
            return None if self._pending_refusal is not None else self._since + LINGER_SECONDS
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                return None
            if self.flow.read_paused:  # the client cannot send more
                self._since = self.loop.time()
            return self._since + bounds.body_seconds
        if cycle is not None and cycle.more_body and not self._in_head:
            return self._since + REST_SECONDS
        seconds = bounds.head_seconds if self._in_head else self.timeout_keep_alive
        if self._surplus:
            seconds = min(seconds, SURPLUS_SECONDS)
        elif self._load.ending:
            seconds = min(seconds, ENDING_SECONDS)
        return self._since + seconds

    def _watch(self) -> None:
        """Set the timer to the end of the client's time, unless it fires earlier."""
        due, timer = self._due(), self.timeout_keep_alive_task
        if due is None:
            return
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self.timeout_keep_alive_task = self.loop.call_at(due, self.timeout_keep_alive_handler)

    def _cancel_timer(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        due = self._due()
        if due is None or self.transport.is_closing():
            return
        if due > self.loop.time():
            self._watch()
        elif self._refused:
            self.transport.abort()
        elif self._latest is not None and not self._latest.response_complete:
            self.refuse(RequestTimedOut(_LATE_BODY.format(seconds=self._load.bounds.body_seconds)))
        elif self._surplus:
            self.refuse(ServerBusy(BUSY, retry_after=RETRY_SECONDS))
        elif self._in_head:
            self.refuse(RequestTimedOut(_LATE_HEAD.format(seconds=self._load.bounds.head_seconds)))
        else:
            self.transport.close()

    # The end of a connection.

    @property
    def is_fresh(self) -> bool:
        return self._latest is None

    @property
    def idle_since(self) -> float | None:
        cycle = self._latest
        return self._since if cycle is None or cycle.response_complete else None

    def close_idle(self) -> None:
        """Close; a client whose first request may be under way gets a refusal with the reason."""
        if self._latest is None:
            self.transport.write(refusal(ServerBusy(BUSY, retry_after=RETRY_SECONDS)))
        self.transport.close()

    def shutdown(self) -> None:
        """Called by the server when it ends. A client that has connected just before may still send a request."""
        cycle = self._latest
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
            if callable(end := cycle.scope.get(ON_SHUTDOWN)):
                end()
        elif cycle is None or self._in_head or self._refused:
            self._watch()
        else:
            self.transport.close()

    def refuse(self, error: TidemarkError) -> None:
        cycle = self._latest
        self._refused = True
        self._load.bodies.release(self)
        self._load.notices.warn(type(error).__name__, f"A request was refused as it came in: {error}")
        if cycle is None or cycle.response_complete:
            self._refuse_and_close(None if cycle is not None and cycle.more_body else error)
        elif self._in_head or not cycle.more_body:
            self._pending_refusal = error
        else:
            self._refuse_body(cycle, error)

    def _end_answered(self) -> None:
        """Called by the reader: close after the client has had time to read its answer."""
        self._refused = True
        self._close_later()

    def _refuse_body(self, cycle: RequestResponseCycle, error: TidemarkError) -> None:
        """Refuse a request whose body is not complete."""
        cycle.disconnected = True
        cycle.message_event.set()
        if self.pipeline:  # its last request is this one
            self.pipeline.popleft()
            self._pending_refusal = error
        else:
            self._refuse_and_close(None if cycle.response_started else error)

    def _refuse_and_close(self, error: TidemarkError | None) -> None:
        """Write a refusal, and close after the client has had time to read it."""
        self._pending_refusal = None
        if error is None or self.transport.is_closing():
            self.transport.close()
            return
        self.transport.write(refusal(error))
        self._close_later()

    def _close_later(self) -> None:
        """Close for writing, and wholly after ``LINGER_SECONDS``; the client's bytes are dropped until then."""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self._since = self.loop.time()
        self._watch()
