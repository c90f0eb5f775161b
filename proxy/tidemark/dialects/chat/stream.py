"""Reads an event stream: folds the chunks in its events into a reply.

It runs after the upstream, while the client gets the bytes; ``reply.py`` knows what a chunk means. Source: the
event-stream format of the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

import re

from tidemark.core.conversation.reply import Reply
from tidemark.dialects.chat.reply import ChunkFold, Decode
from tidemark.dialects.event_stream import CutStream
from tidemark.dialects.raw_json import decode_or_none

DONE = b"[DONE]"
_FINAL = re.compile(rb"\[DONE\]")


class StreamFold(CutStream):
    """Folds an event stream while it comes, up to ``data: [DONE]``, where clients stop, on a line of its own."""

    def __init__(self, decode: Decode) -> None:
        self._chunks = ChunkFold()
        super().__init__(self._chunks, _FINAL)
        self._decode = decode

    def _fold_waiting(self) -> None:
        """Fold the waiting pieces, and ``[DONE]`` as soon as its line ends: the empty line after it may never come."""
        super()._fold_waiting()
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
            self._chunks.add(chunk)

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
