"""Cuts an event stream at the ends of its events, wherever the network cuts it.

The relay calls it for every streamed reply. Each dialect reads what the events say (``chat/reply.py``). Source: the
event-stream format of the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

import re

MAX_PENDING_BYTES = 2**20
"""A longer event is delivered in pieces."""
_FIELDS = (b"data", b"event", b"id", b"retry", b":")
_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\n\r", b"\r\r\n", b"\r\r")
"""A line's end with an empty line after it: WHATWG HTML, section 9.2.6."""
EVENTS = re.compile(rb".+?(?:\r?\n\r?\n|\r\r|\Z)", re.DOTALL)
"""Matches each event of whole ones, with the empty line after it."""


def payload_of(event: bytes) -> bytes:
    """Return the data of an event; empty for a comment."""
    return b"\n".join([line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")])


class WholeEvents:
    """Delivers a stream in whole events, so that an event of our own can follow.

    An event that has ended never waits for the next one. Bytes that cannot be an event do not wait at all.
    """

    def __init__(self) -> None:
        self.pending = bytearray()
        """The beginning of an event."""

    def feed(self, chunk: bytes) -> bytes:
        """Take in the next bytes, and return those that may go to the client."""
        pending = self.pending
        if not pending and chunk.endswith(b"\n\n"):
            return chunk
        searched = max(len(pending) - 2, 0)  # up to two bytes may begin an event's end that the chunk completes
        pending += chunk
        end = max(_end_of_last(pending, blank, searched) for blank in _BLANK_LINES)
        while pending.startswith((b"\n", b"\r"), end):  # the LF of a CR LF, or more empty lines
            end += 1
        if len(pending) - end > MAX_PENDING_BYTES or not _may_begin(bytes(pending[end : end + 5])):
            end = len(pending)
        ready = bytes(pending[:end])
        del pending[:end]
        return ready


def _end_of_last(data: bytearray, blank: bytes, start: int) -> int:
    """Return where the last ``blank`` at or after ``start`` ends; 0 if there is none."""
    place = data.rfind(blank, start)
    return place + len(blank) if place >= 0 else 0


def _may_begin(start: bytes) -> bool:
    """Return whether an event may begin with these bytes; there may be too few of them to decide."""
    return any(start.startswith(name) or name.startswith(start) for name in _FIELDS)
