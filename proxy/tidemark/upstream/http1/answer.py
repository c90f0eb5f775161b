"""One answer: it parses bytes as they arrive and hands the body out piece by piece.

Last step of the HTTP client. Every exchange has an ``HttpAnswer`` and a parser of its own, so that nothing of it can
reach a later exchange of the same connection. It sees the connection as an ``AnswerSource`` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from tidemark.core.http_headers import CONTROLS
from tidemark.upstream.http1.failures import AnswerBroken, ConnectionGone

LINE_BYTES = 65_536
"""The longest header line. The usual 8 kB are less than some gateways' policy headers."""
MAX_HEADERS = 128
OVERHEAD_BYTES = 4 * LINE_BYTES
"""The most bytes in a row that neither end a head nor belong to the body: interim answers, trailers."""
BUFFER_BYTES = 131_072
"""Reading pauses when more of the body than this waits to be taken. Counted with its framing."""


class AnswerState(Enum):
    """How far an answer has come."""

    HEAD = "waits for its head"
    BODY = "waits for more of its body"
    COMPLETE = "is complete"
    FAILED = "has failed"


# Looking a member up on its class costs more than all else of a check.
_HEAD, _BODY, _COMPLETE, _FAILED = AnswerState


class AnswerSource(Protocol):
    """The connection, as its answer sees it."""

    def watch(self, due: float) -> None:
        """Fail the answer at ``due``, by the loop's clock, if a caller still waits for it then."""

    def pause(self) -> None:
        """Stop reading for now."""

    def resume(self) -> None:
        """Read again."""

    def abort(self) -> None:
        """Close at once."""


class HttpAnswer:
    """Status and headers as they came, and the body as it arrives."""

    __slots__ = (
        "_bodiless",
        "_buffered_bytes",
        "_connection",
        "_error",
        "_loop",
        "_overhead_bytes",
        "_parser",
        "_pieces",
        "_reading_paused",
        "_state",
        "_waiter",
        "headers",
        "keeps_connection",
        "on_body",
        "status",
    )

    def __init__(self, connection: AnswerSource, loop: asyncio.AbstractEventLoop, *, bodiless: bool = False) -> None:
        """:param bodiless: whether it ends with its head, whatever that says, since the request is a HEAD"""
        self.status = 0
        """0 until the whole head has come."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.keeps_connection = False
        """Whether the connection may carry another exchange once this answer is complete."""
        self._bodiless = bodiless
        self._state = _HEAD
        self._connection: AnswerSource | None = connection
        self._loop = loop
        self._reading_paused = False
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # called by the parser for each chunk, so it is no function of Python
        self._buffered_bytes = self._overhead_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: OSError | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Mistakes of servers that every client reads. None of them makes two readings of one answer possible.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def __repr__(self) -> str:
        return f"<HttpAnswer of status {self.status or 'unknown'} {self._state.value}>"

    @property
    def complete(self) -> bool:
        return self._state is _COMPLETE

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for what comes next."""
        return self._waiter is not None

    def wait_for_more(self, due: float) -> asyncio.Future[None]:
        """Return a future that is done when more has come, or when nothing more will."""
        self._waiter = waiter = self._loop.create_future()
        if self._connection is not None:
            self._connection.watch(due)
        else:
            self._wake()
        return waiter

    def require_head(self) -> None:
        """Check that status and headers have come.

        :raises OSError: they have not, and will not
        """
        if not self.status:
            raise self._failure()

    async def read(self, silence_seconds: float) -> bytes:
        pieces = self._pieces
        due = 0.0 if pieces else self._loop.time() + silence_seconds
        while not pieces:
            if self._state is _COMPLETE:
                return b""
            if self._state is _FAILED:
                raise self._failure()
            await self.wait_for_more(due)  # bytes that only frame the body, such as half a chunk's size, are silence
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._buffered_bytes = 0
        if self._reading_paused and self._connection is not None:
            self._reading_paused = False
            self._connection.resume()
        return data

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    def feed(self, data: bytes) -> bool:
        """Parse what came over the connection, and return whether nothing more will come."""
        parser = self._parser
        if parser is None:
            return True
        pieces, size = len(self._pieces), len(data)
        self._overhead_bytes += size
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self._state is not _COMPLETE:
                self.fail(AnswerBroken(f"malformed: {error.__context__ or error}"))
                return True
            self.keeps_connection = False  # something stands after the end
        if len(self._pieces) > pieces:
            self._overhead_bytes = 0
            self._buffered_bytes += size
        if self._state is _COMPLETE:
            self._detach()
        elif self._overhead_bytes > OVERHEAD_BYTES:
            self.fail(AnswerBroken("too long a head"))
        elif self._buffered_bytes > BUFFER_BYTES and not self._reading_paused and self._connection is not None:
            self._reading_paused = True
            self._connection.pause()
        if self.status:
            self._wake()
        return self._connection is None

    def end(self, error: BaseException | None, *, reused: bool, round_trip_seconds: float = 0.0) -> None:
        """Complete or fail the answer, since the connection has ended.

        :param reused: the connection had carried an answer before
        :param round_trip_seconds: to the server and back
        """
        if self._state is _BODY and error is None and self._lasts_until_close():
            self._state, self.keeps_connection = _COMPLETE, False
            self._detach()
            self._wake()
        elif self.status or self._overhead_bytes:
            self.fail(AnswerBroken(f"broke off: {error!r}"))
        else:
            reason = f"closed without an answer: {error!r}"
            self.fail(ConnectionGone(reason, reused=reused, round_trip_seconds=round_trip_seconds))

    def fail(self, error: OSError) -> None:
        """End the answer with an error; what has come of the body can still be read."""
        if self._state is _HEAD or self._state is _BODY:
            self._error, self._state, self.keeps_connection = error, _FAILED, False
        self._detach()
        self._wake()

    def on_message_begin(self) -> None:
        """Called by the parser, at interim answers too."""
        if self._state is _COMPLETE:
            raise AnswerBroken("an answer without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, for trailers too, which are dropped."""
        if self.status:
            return
        # The parser accepts a space before the colon as part of no name. A proxy removes it (RFC 9112, section 5.1), or
        # the client would read a framing that is not its own.
        self.headers.append((name.rstrip(b" \t"), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        assert self._parser is not None  # noqa: S101 - it is the caller
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self.headers = []  # an interim answer (RFC 9110, section 15.2); the final one follows
            return
        require_sendable(status, self.headers)
        if len(self.headers) > MAX_HEADERS:
            raise AnswerBroken("too many headers")
        if self._overhead_bytes > LINE_BYTES and any(
            len(name) + len(value) > LINE_BYTES for name, value in self.headers
        ):
            raise AnswerBroken("too long a header")
        self.keeps_connection = self._parser.should_keep_alive()
        self.status, self._state = status, _BODY
        if self._bodiless:  # the parser cannot know it, and would take the next answer for this one's body
            self._state, self.keeps_connection = _COMPLETE, False

    def on_message_complete(self) -> None:
        """Called by the parser, for interim answers too."""
        if self.status:
            self._state = _COMPLETE

    def _failure(self) -> OSError:
        """Return the error and forget it, since its traceback will refer to the answer and the request's body."""
        error, self._error = self._error, None
        return error or AnswerBroken("reported before")

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _detach(self) -> None:
        """Let go of the connection and the parser, which refers back to the answer."""
        self._connection = self._parser = None

    def _lasts_until_close(self) -> bool:
        """Whether the body ends where the connection does (RFC 9112, section 6.3, rules 4 and 8)."""
        lines = [(name.lower(), value.lower()) for name, value in self.headers]
        codings = [value for name, value in lines if name == b"transfer-encoding"]
        if codings:
            return codings[-1].rpartition(b",")[2].strip(b" \t") != b"chunked"
        return all(name != b"content-length" for name, _ in lines)


def require_sendable(status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check that a server can send this head on; with another one the client would get nothing at all.

    :raises AnswerBroken: the status is no final one, or a value holds a control character
    """
    if not 200 <= status < 600:
        raise AnswerBroken(f"status {status}")
    values = b"".join([value for _, value in headers])
    if values.translate(None, CONTROLS) != values:
        raise AnswerBroken("a control character in a header")
