"""Reads an event stream of the Responses API: cuts it into events and folds them into a reply.

It runs after the upstream, while the client gets the bytes; ``reply.py`` knows what an event means. Source: the
event-stream format of the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

import re

from proxy.core.conversation.reply import Reply
from proxy.dialects.responses.reply import EventFold

MAX_WAITING_BYTES = 16_384
"""Whole events that wait to be folded together: some hundred."""
LARGE_EVENT_BYTES = 2**17
"""A larger event takes some milliseconds to fold."""
_FINAL = re.compile(rb'"response\.(?:completed|incomplete|failed|cancelled)"')
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")


class EventStreamFold:
    """Folds an event stream while it comes. It buffers ``MAX_WAITING_BYTES`` and one unfinished event at most.

    The pieces may end anywhere. An event that cannot be read is skipped: the client has received it anyway. Everything
    after the last event is skipped, too, such as the ``[DONE]`` that some upstreams add.
    """

    def __init__(self) -> None:
        self.ended = False
        """Whether the event came that ends a stream."""
        self._fold = EventFold()
        self._rest = b""
        """The beginning of an event, with LF as its line ends."""
        self._after_return = False
        """Whether the last byte was a CR. An LF as the next byte then belongs to the same line end."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_cut = False
        """Whether the newest piece ends within an event."""

    def may_end_large(self, data: bytes) -> bool:
        """Return whether these bytes may end an event that takes long to fold, which is work for a thread."""
        return self._waiting_bytes + len(self._rest) > LARGE_EVENT_BYTES and (b"\n" in data or b"\r" in data)

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        if self.ended or not data:
            return
        is_whole = data.endswith((b"}\n\n", b"}\r\n\r\n"))
        is_due = self._is_cut or _FINAL.search(data) is not None if is_whole else b"\n" in data or b"\r" in data
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._is_cut = not is_whole
        if is_due or (is_whole and self._waiting_bytes > MAX_WAITING_BYTES):
            self._fold_waiting()
            self._is_cut = bool(self._rest)

    def reply(self) -> Reply:
        """Return what was read. The rest counts as a whole event, so call it once, at the end of the stream."""
        self._fold_waiting()
        self._take(self._rest)
        self._rest = b""
        return self._fold.reply()

    def _fold_waiting(self) -> None:
        """Fold the events of the waiting pieces."""
        data = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if b"\r" in data or self._after_return:
            data = self._with_line_feeds(data)
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            self._take(event)

    def _with_line_feeds(self, data: bytes) -> bytes:
        """Return the bytes with LF for each CR LF and CR. A CR LF may be cut between two pieces."""
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, event: bytes) -> None:
        """Fold one event."""
        if self.ended or not event:
            return
        name = b""
        payloads: list[bytes] = []
        for line in event.split(b"\n"):
            if line.startswith(b"data:"):
                payloads.append(line[5:].strip())
            elif line.startswith(b"event:"):
                name = line[6:].strip()
        if payloads:
            self._fold.add(name, b"\n".join(payloads))
            self.ended = self._fold.ended


def before_end(data: bytes) -> bytes:
    """Return the events before the one that ends a stream."""
    final = [match.start() for match in _FINAL.finditer(data)]
    if not final:
        return data
    ends = [end.end() for end in _EVENT_END.finditer(data, 0, final[-1])]
    return data[: ends[-1]] if ends else b""
