"""Framing: where the events of an event stream end, whatever pieces the network cuts it into.

Beside the relay, on the way of every streamed answer; ``stream.py`` reads the same bytes for what they say.
"""

from __future__ import annotations

MAX_HELD_BYTES = 2**20
"""A longer event is delivered in pieces."""
_FIELDS = (b"data", b"event", b"id", b"retry", b":")
_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\n\r", b"\r\r\n", b"\r\r")
"""A line's end with an empty line after it: WHATWG HTML, section 9.2.6."""


class WholeEvents:
    """Cuts a stream at the ends of its events, so that what we may have to add stands apart from what was cut short.

    An event that is over never waits for the next one, and what can be no event does not wait at all.
    """

    def __init__(self) -> None:
        self.pending = bytearray()
        """The beginning of an event."""

    def feed(self, chunk: bytes) -> bytes:
        """Take in the next bytes, and give those that may go."""
        pending = self.pending
        if not pending and chunk.endswith(b"\n\n"):
            return chunk
        known = max(len(pending) - 2, 0)  # of an end that falls apart between chunks, two bytes at most are kept
        pending += chunk
        end = max(_after(pending, blank, known) for blank in _BLANK_LINES)
        while pending.startswith((b"\n", b"\r"), end):  # the second half of CR LF, or more empty lines
            end += 1
        if len(pending) - end > MAX_HELD_BYTES or not _may_begin(bytes(pending[end : end + 5])):
            end = len(pending)
        ready = bytes(pending[:end])
        del pending[:end]
        return ready


def _after(data: bytearray, blank: bytes, start: int) -> int:
    """Where the last ``blank`` ends; 0 where there is none."""
    place = data.rfind(blank, start)
    return place + len(blank) if place >= 0 else 0


def _may_begin(start: bytes) -> bool:
    """Whether an event may begin with these bytes, or with these and more."""
    return any(start.startswith(name) or name.startswith(start) for name in _FIELDS)
