"""One client's connection: what it reads is bounded in time, and whatever ends it is said.

One timer looks how long a client has been silent.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from proxy.core.errors import HeadTooLarge, RequestTimedOut, ServerBusy, TidemarkError
from proxy.server.connections.bounds import HEAD_BYTES, LEAVING_SECONDS, LINGER_SECONDS, REST_SECONDS, SURPLUS_SECONDS
from proxy.server.connections.exchange import refusal
from proxy.server.connections.load import RETRY_SECONDS
from proxy.server.connections.reading import BUSY, TOO_LARGE, Reading

_LATE_HEAD = "The request's head was not complete after {seconds:g} s. Send it again."
_LATE_BODY = "Nothing more of the request's body came for {seconds:g} s. Send the request again."


class ClientConnection(Reading):
    """One client's connection. Mutable beside what is being read: how the connection is to end.

    Its parameters are those of ``Reading``.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.listed = False
        self._unheard = 0
        """Bytes since the last progress: of lines that are not complete, or of trailers."""
        self._farewell: TidemarkError | None = None
        """The refusal that is to follow the answers of earlier requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._load.list_idle(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop. The timer would keep the connection in memory."""
        super().connection_lost(exc)
        self._unwatch()
        self._load.end(self)

    # Silence. uvicorn sets a timer after every answer and takes it back at the next request. This one is left to run:
    # it looks when it was first set to, and is set anew where less than the client's time has passed.

    def on_response_complete(self) -> None:
        """Called by uvicorn, and where an answer has gone out in one write."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._unwatch()
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._farewell is not None:
            self._part(self._farewell)
        else:
            self._since = self.loop.time()
            if not self.listed:
                self._load.list_idle(self)
            if self._waited:
                self._waited = False
                self._load.bodies.release(self)
                self._watch()
            elif self.timeout_keep_alive_task is None:
                self._watch()

    def _wait(self) -> None:
        """Bound what has come of a request that is not complete, and the time for the rest of it."""
        self._waited = True
        if self._progress:
            self._progress = False
            self._unheard = 0
        else:
            self._unheard += self._size
            if self._unheard > HEAD_BYTES:
                self.refuse(HeadTooLarge(TOO_LARGE))
                return
        if self._in_head:
            if not self._split:
                self._split = True
                self._since = self.loop.time()
        elif not self.cycle.response_complete:
            self._since = self.loop.time()
            self._load.bodies.add(self, self._size)
        self._watch()

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The request that came last; None where none has come."""
        return self.cycle

    def _due(self) -> float | None:
        """When the client has been silent for too long; None while it is the one that waits."""
        bounds, cycle = self._load.bounds, self._latest
        if self._refused:
            return None if self._farewell is not None else self._since + LINGER_SECONDS
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                return None
            if self.flow.read_paused:  # it could not send more
                self._since = self.loop.time()
            return self._since + bounds.body_seconds
        if cycle is not None and cycle.more_body and not self._in_head:
            return self._since + REST_SECONDS
        seconds = bounds.head_seconds if self._in_head else self.timeout_keep_alive
        if self._surplus:
            seconds = min(seconds, SURPLUS_SECONDS)
        elif self._load.leaving:
            seconds = min(seconds, LEAVING_SECONDS)
        return self._since + seconds

    def _watch(self) -> None:
        """Have the timer look when the client's time is over, or earlier."""
        due, timer = self._due(), self.timeout_keep_alive_task
        if due is None:
            return
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self.timeout_keep_alive_task = self.loop.call_at(due, self.timeout_keep_alive_handler)

    def _unwatch(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def timeout_keep_alive_handler(self) -> None:
        """Called by the timer."""
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
    def fresh(self) -> bool:
        """Whether nothing has been asked yet."""
        return self._latest is None

    @property
    def idle_since(self) -> float | None:
        """Since when nothing is under way for the client, by the loop's clock; None where something is."""
        cycle = self._latest
        return self._since if cycle is None or cycle.response_complete else None

    def leave(self) -> None:
        """Close, since nothing is under way; a client whose first request may be on its way is told why."""
        if self._latest is None:
            self.transport.write(refusal(ServerBusy(BUSY, retry_after=RETRY_SECONDS)))
        self.transport.close()

    def shutdown(self) -> None:
        """Called by the server when it ends. Who has connected just before may still send a request."""
        cycle = self._latest
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
        elif cycle is None or self._in_head or self._refused:
            self._watch()
        else:
            self.transport.close()

    def refuse(self, error: TidemarkError) -> None:
        """Answer the request that is being read by an error, in its turn, and close the connection."""
        cycle = self._latest
        self._refused = True
        self._load.bodies.release(self)
        self._load.notices.warn(type(error).__name__, f"A request was refused as it came in: {error}")
        if cycle is None or cycle.response_complete:
            self._part(None if cycle is not None and cycle.more_body else error)
        elif self._in_head or not cycle.more_body:
            self._farewell = error
        else:
            self._give_up(cycle, error)

    def _give_up(self, cycle: RequestResponseCycle, error: TidemarkError) -> None:
        """Refuse a request whose body is not complete."""
        cycle.disconnected = True
        cycle.message_event.set()
        if self.pipeline:  # the last one in it is this one
            self.pipeline.popleft()
            self._farewell = error
        else:
            self._part(None if cycle.response_started else error)

    def _part(self, error: TidemarkError | None) -> None:
        """Write a refusal, and close once the client has had time to read it."""
        self._farewell = None
        if error is None or self.transport.is_closing():
            self.transport.close()
            return
        self.transport.write(refusal(error))
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self._since = self.loop.time()
        self._watch()
