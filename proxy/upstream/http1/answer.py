"""One answer: parsed as its bytes arrive, and handed out piece by piece to whoever waits.

Last step of the HTTP client. Every exchange has an ``HttpAnswer`` and a parser of its own, so that nothing of one can
reach another that comes over the same connection later. It knows the connection by what it asks of it only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from proxy.core.http_headers import CONTROLS
from proxy.upstream.http1.failures import AnswerBroken, ConnectionGone

LINE_BYTES = 65_536
"""The longest header line taken; the 8 kB that are customary are less than some gateways' policy headers."""
MAX_HEADERS = 128
UNHEARD_BYTES = 4 * LINE_BYTES
"""The most that may come without ending a head or bringing a piece of the body: interim answers, trailers."""
HELD_BYTES = 131_072
"""More than this is not read from the connection until somebody takes it. Counted as it came, framing included."""


class AnswerSource(Protocol):
    """The connection, as its answer sees it."""

    def watch(self, due: float) -> None:
        """Fail the answer at ``due``, by the loop's clock, if it is still waited for then."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read again."""

    def abort(self) -> None:
        """Close at once."""


class HttpAnswer:
    """Status and headers as they came, and the body on its way."""

    __slots__ = (
        "_carrier",
        "_error",
        "_failed",
        "_headed",
        "_held",
        "_loop",
        "_parser",
        "_paused",
        "_pieces",
        "_unheard",
        "_waiter",
        "complete",
        "headers",
        "keep",
        "on_body",
        "status",
    )

    def __init__(self, carrier: AnswerSource, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False
        """The body has come to its end."""
        self.keep = False
        """The connection may carry another exchange once this answer is complete."""
        self._carrier: AnswerSource | None = carrier
        self._loop = loop
        self._failed = self._headed = self._paused = False
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # called by the parser, for each chunk: the one callback that is not ours
        self._held = self._unheard = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: OSError | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # What servers get wrong and every client reads. None of it makes two readings of one answer possible.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    @property
    def awaited(self) -> bool:
        """Somebody waits for what comes next."""
        return self._waiter is not None

    def more(self, due: float) -> asyncio.Future[None]:
        """Done when there is more, or when nothing more will come."""
        self._waiter = waiter = self._loop.create_future()
        if self._carrier is not None:
            self._carrier.watch(due)
        else:
            self._wake()
        return waiter

    def require_head(self) -> None:
        """Pass an answer whose status and headers are there.

        :raises OSError: they did not come
        """
        if not self._headed:
            raise self._failure()

    async def read(self, silence_seconds: float) -> bytes:
        """What has come of the body since the last piece, waiting if there is nothing; empty at its end.

        :raises OSError: nothing of the body came for so long, or it breaks off
        """
        pieces = self._pieces
        due = 0.0 if pieces else self._loop.time() + silence_seconds
        while not pieces:
            if self.complete:
                return b""
            if self._failed:
                raise self._failure()
            await self.more(due)  # what only frames the body, such as half a chunk's size, is silence too
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held = 0
        if self._paused and self._carrier is not None:
            self._paused = False
            self._carrier.resume()
        return data

    def close(self) -> None:
        """Give up what has not come yet, and the connection with it."""
        if self._carrier is not None:
            self._carrier.abort()

    def feed(self, data: bytes) -> bool:
        """Hear what came over the connection; whether nothing more will come."""
        parser = self._parser
        if parser is None:
            return True
        pieces, size = len(self._pieces), len(data)
        self._unheard += size
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self.complete:
                self.fail(AnswerBroken(f"malformed: {error.__context__ or error}"))
                return True
            self.keep = False  # something stands after the end
        if len(self._pieces) > pieces:
            self._unheard = 0
            self._held += size
        if self.complete:
            self._leave()
        elif self._unheard > UNHEARD_BYTES:
            self.fail(AnswerBroken("too long a head"))
        elif self._held > HELD_BYTES and not self._paused and self._carrier is not None:
            self._paused = True
            self._carrier.pause()
        if self._headed:
            self._wake()
        return self._carrier is None

    def end(self, error: BaseException | None, *, kept: bool, round_trip_seconds: float = 0.0) -> None:
        """Take the connection's end.

        :param kept: it had carried an answer before
        :param round_trip_seconds: to the server and back
        """
        if self._headed and error is None and self._until_close():
            self.complete, self.keep = True, False
            self._leave()
            self._wake()
        elif self._headed or self._unheard:
            self.fail(AnswerBroken(f"broke off: {error!r}"))
        else:
            reason = f"closed without an answer: {error!r}"
            self.fail(ConnectionGone(reason, kept=kept, round_trip_seconds=round_trip_seconds))

    def fail(self, error: OSError) -> None:
        """Nothing more will come; what has come can still be read."""
        if not self.complete and not self._failed:
            self._error, self._failed, self.keep = error, True, False
        self._leave()
        self._wake()

    def on_message_begin(self) -> None:
        """Called by the parser, at interim answers too."""
        if self.complete:
            raise AnswerBroken("an answer that nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, for trailers too; those are not handed on."""
        if self._headed:
            return
        # The parser takes a name with a space before its colon for what it says; so must whoever reads it later. A
        # proxy removes the space (RFC 9112, section 5.1), or the client would be told a framing that is not its own.
        self.headers.append((name.rstrip(b" \t"), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        assert self._parser is not None  # noqa: S101 - it is the caller
        self.status = status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self.headers = []  # an interim answer (RFC 9110, section 15.2); the one that counts comes yet
            return
        require_sendable(status, self.headers)
        if len(self.headers) > MAX_HEADERS:
            raise AnswerBroken("too many headers")
        if self._unheard > LINE_BYTES and any(len(name) + len(value) > LINE_BYTES for name, value in self.headers):
            raise AnswerBroken("too long a header")
        self.keep = self._parser.should_keep_alive()
        self._headed = True

    def on_message_complete(self) -> None:
        """Called by the parser, for interim answers too."""
        self.complete = self._headed

    def _failure(self) -> OSError:
        """Why nothing more comes; let go of, since by its traceback it will hold the answer and the request's body."""
        error, self._error = self._error, None
        return error or AnswerBroken("told before")

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _leave(self) -> None:
        """The connection is no longer this answer's, and parser and answer let go of each other."""
        self._carrier = self._parser = None

    def _until_close(self) -> bool:
        """Whether the body ends where the connection does (RFC 9112, section 6.3, rules 4 and 8)."""
        lines = [(name.lower(), value.lower()) for name, value in self.headers]
        codings = [value for name, value in lines if name == b"transfer-encoding"]
        if codings:
            return codings[-1].rpartition(b",")[2].strip(b" \t") != b"chunked"
        return all(name != b"content-length" for name, _ in lines)


def require_sendable(status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Pass a head that a server can send on; with another one the client would get nothing at all.

    :raises AnswerBroken: the status is no final one, or a value holds a control character
    """
    if not 200 <= status < 600:
        raise AnswerBroken(f"status {status}")
    values = b"".join([value for _, value in headers])
    if values.translate(None, CONTROLS) != values:
        raise AnswerBroken("a control character in a header")
