"""Bounds the memory that one answer of an upstream may take: not every answer has an end.

Both lanes apply it. If a request is only carried, its answer has no bound but that of an error, because Tidemark holds
nothing else of it.
"""

from __future__ import annotations

from tidemark.core.errors import UpstreamBroken
from tidemark.core.frozen import frozen
from tidemark.core.ports import Headers, Route
from tidemark.upstream.errors import endless

MEGABYTE = 1_048_576
_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r")
"""The empty line that ends an event, with the end of the line before it (WHATWG HTML, section 9.2.6)."""
_TAIL_BYTES = 2
"""One less than the longest of these."""


@frozen
class AnswerBounds:
    """The most bytes of one answer. If it is longer the connection is closed, and the client gets an error."""

    error: int = MEGABYTE
    """Of any error's body. Errors are read whole, because they may say why to send a request again."""
    event: int = 16 * MEGABYTE
    """Of one event of a stream in answer to a model request. Whoever reads the stream holds an event until its end."""
    answer: int = 128 * MEGABYTE
    """Of an answer to a model request, whole or as a stream. Its text is held until it is stored."""

    def too_long_error(self, route: Route) -> UpstreamBroken:
        return endless(route, "an error", self.error, "limits.max_error_mb")

    def too_long_event(self, route: Route) -> UpstreamBroken:
        return endless(route, "one event", self.event, "limits.max_event_mb")

    def too_long_answer(self, route: Route) -> UpstreamBroken:
        return endless(route, "an answer", self.answer, "limits.max_answer_mb")


class OpenEvent:
    """Counts the bytes of the event of a stream that has not ended. Mutable: how many, and the newest ones."""

    __slots__ = ("_tail", "size")

    def __init__(self) -> None:
        self.size = 0
        self._tail = b""
        """An event's end may be cut between two pieces."""

    def add(self, piece: bytes) -> None:
        if piece.endswith(b"\n\n"):  # nearly always
            self.size, self._tail = 0, b""
            return
        recent = self._tail + piece
        end = max([recent.rfind(blank) for blank in _BLANK_LINES])
        self.size = len(recent) - end if end >= 0 else self.size + len(piece)
        self._tail = recent[-_TAIL_BYTES:]


def has_plain_events(headers: Headers) -> bool:
    """Return whether an answer is an event stream whose events can be seen: packed bytes have no empty lines."""
    is_stream = False
    for name, value in headers:
        if name == b"content-type":
            is_stream = value[:17].lower() == b"text/event-stream"
        elif name == b"content-encoding":
            return False
    return is_stream
