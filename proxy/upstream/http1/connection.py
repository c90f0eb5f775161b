"""One connection to a server: a request goes out in one write, and its answer's bytes go to its ``HttpAnswer``.

Third step of the HTTP client, between opening and answer. One exchange at a time. A connection is kept only after
an answer that was read off it to its end, with nothing behind it and nothing of the request left to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from proxy.upstream.http1.answer import HttpAnswer
from proxy.upstream.http1.failures import ConnectionGone

JOINED_BYTES = 65_536
"""Up to here a body goes out in one write with its head; copying more costs more than a second write."""
WHOLE_BYTES = 2**20
"""Longer bodies are written piece by piece, with other requests in between."""
PIECE_BYTES = 2**18


class UpstreamConnection(asyncio.Protocol):
    """Mutable: the transport, the exchange that is under way, what is left to send of its body, and one timer."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        keep: Callable[[UpstreamConnection], None],
        lost: Callable[[UpstreamConnection], None],
        round_trip_seconds: float = 0.0,
    ) -> None:
        self.open = False
        """A request may be sent; what was heard of its end counts at once."""
        self._loop = loop
        self._keep = keep
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._answer: HttpAnswer | None = None
        self._used = False
        self._round_trip_seconds = round_trip_seconds
        self._rest: memoryview | None = None
        self._choked = False
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = self._due = 0.0

    async def ask(self, head: bytes, body: bytes | None, due: float) -> HttpAnswer:
        """Send a request and wait for the head of its answer; a caller who leaves meanwhile ends the connection.

        :param due: when to stop waiting, by the loop's clock
        :raises OSError: there was no answer, or none until then
        """
        if not self.open:
            raise ConnectionGone("closed before it was asked", kept=self._used)
        answer = self._answer = HttpAnswer(self, self._loop)
        try:
            self._send(head, body or b"")
            await answer.more(due)
            answer.require_head()
        except BaseException:  # cancelled, too: what comes now is nobody's, so the connection goes
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

    # What the answer asks.

    def watch(self, due: float) -> None:
        """Fail the answer at ``due`` if it is still waited for then.

        The timer looks when it was first set to, and is set anew only if that is too late or too early: mostly it
        is never touched again, while setting one for every piece costs as much as the piece.
        """
        self._due = due
        if self._timer is None or due < self._looks_at:
            if self._timer is not None:
                self._timer.cancel()
            self._looks_at = due
            self._timer = self._loop.call_at(due, self._look)

    def pause(self) -> None:
        """Read no more for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and self.open:
            self._transport.resume_reading()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not derived from it
        self.open = True
        # Under TLS what has come is held once more, encrypted. While reading is paused nothing may be, beyond what
        # one look at the socket brings: uvloop forgets it when the server closes without saying so within TLS.
        limit = getattr(transport, "set_read_buffer_limits", None)
        if limit is not None:
            limit(high=1)

    def data_received(self, data: bytes) -> None:
        """Hand on; whatever comes while no answer is expected belongs to none."""
        answer = self._answer
        if answer is None:
            self.abort()
            return
        if answer.feed(data):
            self._answer = None
            if answer.keep and self.open and self._sent():
                self._used = True
                self._keep(self)
            else:
                self.abort()

    def eof_received(self) -> None:
        """The server has closed its side: no exchange can begin or go on."""
        answer = self._shut()
        if answer is not None:
            answer.end(None, kept=self._used, round_trip_seconds=self._round_trip_seconds)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed."""
        answer = self._shut()
        if answer is not None:
            answer.end(exc, kept=self._used, round_trip_seconds=self._round_trip_seconds)
        self._transport = None
        self._lost(self)

    def pause_writing(self) -> None:
        """The server takes no more for now."""
        self._choked = True

    def resume_writing(self) -> None:
        """It does again."""
        self._choked = False
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
            self._rest = memoryview(body)
            self._push()

    def _push(self) -> None:
        """Write the next piece of a long body, and again when the others have had their turn."""
        rest = self._rest
        if rest is None or self._choked or self._transport is None:
            return
        self._rest = rest[PIECE_BYTES:] if len(rest) > PIECE_BYTES else None
        self._transport.write(rest[:PIECE_BYTES])
        if self._rest is not None and not self._choked:
            self._loop.call_soon(self._push)

    def _sent(self) -> bool:
        """Nothing of the request is left with us: a server that has answered already may never read it."""
        return self._rest is None and self._transport is not None and not self._transport.get_write_buffer_size()

    def _look(self) -> None:
        self._timer = None
        answer = self._answer
        if answer is None or not answer.awaited:
            return
        if self._due <= self._loop.time():
            answer.fail(TimeoutError("silent for too long"))
            self.abort()
        else:
            self.watch(self._due)

    def _shut(self) -> HttpAnswer | None:
        """No exchange begins any more; the one under way is handed over."""
        self.open = False
        self._rest = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        answer, self._answer = self._answer, None
        return answer
