"""An event stream as it comes, cut into events whose chunks are folded.

On the road of a request after the upstream, while the client gets its bytes; above ``delta.py``, which knows what a
chunk says. Source: the event-stream format of the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

from proxy.core.conversation.reply import Reply
from proxy.dialects.chat.reply import Decode, Fold, decoded

DONE = b"[DONE]"
HELD_BYTES = 16_384
"""Of whole events, until they are folded: some hundred chunks."""

LARGE_EVENT_BYTES = 2**17
"""An event beyond this takes some milliseconds to fold."""


class StreamFold:
    """Folds an event stream as it comes; at most ``HELD_BYTES`` and an event that is not over yet are held as bytes.

    The pieces may end anywhere. An event that cannot be read is passed over: the client has had it anyway. So
    is all that comes after ``[DONE]``, where clients stop reading. Pieces that are plainly whole events wait until
    there are some of them: folded together they cost half, and none delays the next one.
    """

    def __init__(self, decode: Decode) -> None:
        self.ended = False
        """Whether ``data: [DONE]`` was seen, on a line of its own that is over."""
        self._decode = decode
        self._fold = Fold()
        self._rest = bytearray()
        """The beginning of an event, its line ends written as LF."""
        self._after_return = False
        """Whether the last byte was a CR, so that an LF now is the same line end."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def may_end_large(self, data: bytes) -> bool:
        """Tell whether these bytes may end an event that takes long to fold, which is work for a thread."""
        return len(self._rest) > LARGE_EVENT_BYTES and (b"\n" in data or b"\r" in data)

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        if self.ended or not data:
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > HELD_BYTES or self._rest or not data.endswith(b"}\n\n") or b"[DONE]" in data:
            self._catch_up()

    def _catch_up(self) -> None:
        """Fold what waits."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if b"\r" in data or self._after_return:
            data = self._with_line_feeds(data)
        if self._rest:
            known = len(self._rest)
            self._rest += data
            if self._rest.find(b"\n\n", known - 1) < 0:
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
        """What was said; to be called when the stream is over or ``ended``, since it takes the rest for whole."""
        self._catch_up()
        self._take(bytes(self._rest))
        self._rest.clear()
        return self._fold.reply()

    def _with_line_feeds(self, data: bytes) -> bytes:
        """CR LF and CR end a line as LF does; the first may fall apart between two pieces."""
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _look_ahead(self) -> None:
        """See ``[DONE]`` as soon as its line is over, before the empty line that ends the event."""
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
        chunk = decoded(payload, self._decode)
        if isinstance(chunk, dict):
            self._fold.add(chunk)

    def _joined(self, event: bytes) -> bytes:
        """The ``data`` lines of an event, joined by line ends, up to ``[DONE]``: no JSON has such a line."""
        said: list[bytes] = []
        for line in event.split(b"\n"):
            payload = _payload(line)
            if payload == DONE:
                self.ended = True
                break
            if payload is not None:
                said.append(payload)
        return b"\n".join(said)


def fold_stream(data: bytes, decode: Decode) -> Reply:
    """Fold the whole of an event stream."""
    fold = StreamFold(decode)
    fold.feed(data)
    return fold.reply()


def _payload(line: bytes) -> bytes | None:
    """What a ``data`` line carries; JSON does not mind the spaces around it."""
    return line[5:].strip() if line.startswith(b"data:") else None
