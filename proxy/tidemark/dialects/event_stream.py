"""Cuts a stream into named events, and gives each to a fold that knows its meaning.

Dialects read streamed replies with it, after the upstream, while the client gets the bytes. Source: the event-stream
format of the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Protocol

from tidemark.core.conversation.reply import Reply

MAX_WAITING_BYTES = 16_384
"""Whole events that wait to be folded together: some hundred."""
LARGE_EVENT_BYTES = 2**17
"""A larger event takes some milliseconds to fold."""
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")


class Fold(Protocol):
    """What the events are folded into."""

    def reply(self) -> Reply:
        """Return what was read."""
        ...


class NamedEventFold(Fold, Protocol):
    """Folds the events of one dialect."""

    ended: bool
    """Whether the event came that ends a stream."""

    def add(self, payload: bytes) -> None:
        """Take in the data of one event."""
        ...


class CutStream(ABC):
    """``ReplyFold`` that cuts a stream into events. It buffers ``MAX_WAITING_BYTES`` and one unfinished event at most.

    The pieces may end anywhere. An event that cannot be read is skipped: the client has received it anyway. Everything
    after the last event is skipped, too.

    :param fold: has what the events said
    :param final: matches bytes that stand in the event which ends a stream
    """

    def __init__(self, fold: Fold, final: re.Pattern[bytes]) -> None:
        self.ended = False
        self._reply = fold.reply
        self._final = final
        self._rest = bytearray()
        """The beginning of an event, with LF as its line ends."""
        self._after_return = False
        """Whether the last byte was a CR. An LF as the next byte then belongs to the same line end."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def may_end_large(self, data: bytes) -> bool:
        return len(self._rest) > LARGE_EVENT_BYTES and (b"\n" in data or b"\r" in data)

    def feed(self, data: bytes) -> None:
        """Take in the next bytes; whole events wait until there are several, because that costs half."""
        if self.ended or not data:
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        is_whole = not self._rest and data.endswith(b"}\n\n") and self._final.search(data) is None
        if not is_whole or self._waiting_bytes > MAX_WAITING_BYTES:
            self._fold_waiting()

    def reply(self) -> Reply:
        self._fold_waiting()
        self._take(bytes(self._rest))
        self._rest.clear()
        return self._reply()

    def _fold_waiting(self) -> None:
        data = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if b"\r" in data or self._after_return:
            data = self._with_line_feeds(data)
        if self._rest:
            searched = len(self._rest)
            self._rest += data
            if self._rest.find(b"\n\n", searched - 1) < 0:
                return
            data = bytes(self._rest)
        *events, rest = data.split(b"\n\n")
        self._rest = bytearray(rest)
        for event in events:
            self._take(event)

    def _with_line_feeds(self, data: bytes) -> bytes:
        """Return the bytes with LF for each CR LF and CR. A CR LF may be cut between two pieces."""
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    @abstractmethod
    def _take(self, event: bytes) -> None:
        """Fold one event, unless the stream has ended."""


class EventStream(CutStream):
    """Reads a stream of named events."""

    def __init__(self, fold: NamedEventFold, final: re.Pattern[bytes]) -> None:
        super().__init__(fold, final)
        self._fold = fold

    def _take(self, event: bytes) -> None:
        if self.ended or not event:
            return
        at = event.find(b"\ndata:")
        if at >= 0 and event.count(b"\n") == 1 and event.startswith(b"event:"):  # nearly always
            payload = event[at + 6 :].strip()
        else:
            payload = b"\n".join([line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")])
        if payload:
            self._fold.add(payload)
            self.ended = self._fold.ended


def before_final(data: bytes, final: re.Pattern[bytes]) -> bytes:
    """Return the events before the last one that ``final`` matches."""
    matches = [match.start() for match in final.finditer(data)]
    if not matches:
        return data
    ends = [end.end() for end in _EVENT_END.finditer(data, 0, matches[-1])]
    return data[: ends[-1]] if ends else b""
