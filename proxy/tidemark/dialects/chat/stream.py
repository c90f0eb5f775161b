"""Reads an event stream: cuts it into events and folds their chunks into a reply.

It runs after the upstream, while the client gets the bytes; ``reply.py`` knows what a chunk means. Source: the
event-stream format of the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

from tidemark.core.conversation.reply import Reply
from tidemark.dialects.chat.reply import ChunkFold, Decode, decode_or_none

DONE = b"[DONE]"
MAX_WAITING_BYTES = 16_384
"""Whole events that wait to be folded together: some hundred chunks."""
LARGE_EVENT_BYTES = 2**17
"""A larger event takes some milliseconds to fold."""


class StreamFold:
    """Folds an event stream while it comes. It buffers ``MAX_WAITING_BYTES`` and one unfinished event at most.

    The pieces may end anywhere. An event that cannot be read is skipped: the client has received it anyway. Everything
    after ``[DONE]`` is skipped, too, because clients stop reading there. Pieces that are clearly whole events wait
    until there are several: to fold them together costs half.
    """

    def __init__(self, decode: Decode) -> None:
        self.ended = False
        """Whether ``data: [DONE]`` came, on a whole line of its own."""
        self._decode = decode
        self._fold = ChunkFold()
        self._rest = bytearray()
        """The beginning of an event, with LF as its line ends."""
        self._after_return = False
        """Whether the last byte was a CR. An LF as the next byte then belongs to the same line end."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def may_end_large(self, data: bytes) -> bool:
        """Return whether these bytes may end an event that takes long to fold, which is work for a thread."""
        return len(self._rest) > LARGE_EVENT_BYTES and (b"\n" in data or b"\r" in data)

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        if self.ended or not data:
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > MAX_WAITING_BYTES or self._rest or not data.endswith(b"}\n\n") or b"[DONE]" in data:
            self._fold_waiting()

    def _fold_waiting(self) -> None:
        """Fold the waiting pieces."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if b"\r" in data or self._after_return:
            data = self._with_line_feeds(data)
        if self._rest:
            searched = len(self._rest)
            self._rest += data
            if self._rest.find(b"\n\n", searched - 1) < 0:
                self._look_ahead()
                return
            data = bytes(self._rest)
        *events, rest = data.split(b"\n\n")
        for event in events:
            self._take(event)
        if rest or self._rest:
            self._rest = bytearray(rest)
            self._look_ahead()

    def reply(self) -> Reply:
        """Return what was read. The rest counts as a whole event, so call it once, at the end of the stream."""
        self._fold_waiting()
        self._take(bytes(self._rest))
        self._rest.clear()
        return self._fold.reply()

    def _with_line_feeds(self, data: bytes) -> bytes:
        """Return the bytes with LF for each CR LF and CR. A CR LF may be cut between two pieces."""
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _look_ahead(self) -> None:
        """Notice ``[DONE]`` as soon as its line ends, before the empty line that ends the event."""
        if self._rest.endswith(b"[DONE]\n"):
            line = self._rest[self._rest.rfind(b"\n", 0, -1) + 1 :]
            if _payload(bytes(line)) == DONE:
                self._take(bytes(self._rest))
                self._rest.clear()

    def _take(self, event: bytes) -> None:
        """Fold one event."""
        if self.ended:
            return
        payload = self._joined(event) if b"\n" in event else _payload(event)
        if not payload:
            return
        if payload == DONE:
            self.ended = True
            return
        chunk = decode_or_none(payload, self._decode)
        if isinstance(chunk, dict):
            self._fold.add(chunk)

    def _joined(self, event: bytes) -> bytes:
        """Return the ``data`` lines of an event, joined by line ends, up to ``[DONE]``, which is not JSON."""
        payloads: list[bytes] = []
        for line in event.split(b"\n"):
            payload = _payload(line)
            if payload == DONE:
                self.ended = True
                break
            if payload is not None:
                payloads.append(payload)
        return b"\n".join(payloads)


def fold_stream(data: bytes, decode: Decode) -> Reply:
    """Fold the whole of an event stream."""
    fold = StreamFold(decode)
    fold.feed(data)
    return fold.reply()


def _payload(line: bytes) -> bytes | None:
    """Return the value of a ``data`` line without the spaces around it; None for any other line."""
    return line[5:].strip() if line.startswith(b"data:") else None
