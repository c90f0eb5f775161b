"""Folding: the upstream's answer, streamed or whole, becomes the assistant message that was said.

Last step on the road of a request, while the client gets its bytes. Sources: OpenAI API reference, "The chat
completion chunk object"; the event-stream format of the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from json.encoder import encode_basestring as _quoted

from .chat import parse_message
from .errors import InvalidRequest
from .messages import JsonValue, Message
from .pieces import Pieces
from .values import value

Decode = Callable[[bytes], JsonValue]
"""JSON bytes to a value; raises ValueError or RecursionError. An argument: the outer rooms choose the fastest."""
DONE = b"[DONE]"
HELD_BYTES = 16_384
"""Of whole events, until they are folded: some hundred chunks."""
_JSON = json.JSONEncoder(ensure_ascii=False).encode


@value
class Reply:
    """What an upstream answered."""

    message: Message | None
    """The first choice's message; None when there was none to read."""
    complete: bool
    """Whether the answer came to its end: every choice was given a ``finish_reason``."""
    usage: Mapping[str, JsonValue] = field(default_factory=dict)
    error: JsonValue = None
    """The upstream's own error, told in the stream."""


NOTHING = Reply(None, complete=False)


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
        self._fold = _Fold()
        self._rest = bytearray()
        """The beginning of an event, its line ends written as LF."""
        self._after_return = False
        """Whether the last byte was a CR, so that an LF now is the same line end."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

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
        chunk = _decoded(payload, self._decode)
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


def fold_body(data: bytes, decode: Decode) -> Reply:
    """Fold an answer that was not streamed."""
    body = _decoded(data, decode)
    if not isinstance(body, dict):
        return NOTHING
    choices, usage = body.get("choices"), body.get("usage")
    message: JsonValue = None
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and _index(choice) == 0:
            message = choice.get("message")
            break
    return Reply(
        _message(message) if isinstance(message, dict) else None,
        complete=isinstance(message, dict),
        usage=usage if isinstance(usage, dict) else {},
        error=body.get("error"),
    )


class _Fold:
    """The first choice of a stream so far."""

    def __init__(self) -> None:
        self.said = Pieces()
        self.calls: list[Pieces] = []
        self.newest: dict[int | tuple[int, str], Pieces] = {}
        """The newest call under each ``index``, and under each with that id."""
        self.choices: set[int] = set()
        self.finished: set[int] = set()
        self.usage: Mapping[str, JsonValue] = {}
        self.error: JsonValue = None

    def add(self, chunk: Mapping[str, JsonValue]) -> None:
        """Take in one chunk."""
        if self._goes_on(chunk):
            return
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        if chunk.get("error"):
            self.error = chunk["error"]
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            index = _index(choice)
            self.choices.add(index)
            if choice.get("finish_reason"):
                self.finished.add(index)
            delta = choice.get("delta")
            if index == 0 and isinstance(delta, dict):
                self.add_delta(delta)

    def _goes_on(self, chunk: Mapping[str, JsonValue]) -> bool:
        """Take in what nearly every chunk is: the next piece of the first choice's text, and nothing beside it."""
        choices = chunk.get("choices")
        if not isinstance(choices, list) or len(choices) != 1 or chunk.get("usage") is not None or chunk.get("error"):
            return False
        choice = choices[0]
        if not isinstance(choice, dict) or choice.get("finish_reason") or choice.get("index") != 0:
            return False
        delta = choice.get("delta")
        if 0 not in self.choices or not isinstance(delta, dict) or len(delta) != 1:
            return False
        return self.said.goes_on("content", delta.get("content"))

    def add_delta(self, delta: Mapping[str, JsonValue]) -> None:
        """Take in what the first choice says."""
        if "tool_calls" in delta:
            calls = delta["tool_calls"]
            for position, call in enumerate(calls if isinstance(calls, list) else ()):
                if isinstance(call, dict):
                    self.call_for(call, position).fold(call)
            delta = {key: value for key, value in delta.items() if key != "tool_calls"}
        if delta:
            self.said.fold(delta)

    def call_for(self, piece: Mapping[str, JsonValue], position: int) -> Pieces:
        """The call that a piece belongs to: the newest of its ``index``, unless the piece begins another."""
        index, name = piece.get("index"), piece.get("id")
        place = index if isinstance(index, int) else position
        if not isinstance(name, str):
            name = ""
        known = (name and self.newest.get((place, name))) or self.newest.get(place)
        if known is None or _begins(piece, known.members):
            known = Pieces()
            self.calls.append(known)
        self.newest[place] = known
        if name:
            self.newest[place, name] = known
        return known

    def reply(self) -> Reply:
        """What was folded."""
        said = self.said.value()
        message: dict[str, JsonValue] = {"role": "assistant", "content": None, **said}
        if self.calls:
            message["tool_calls"] = [_call(call.value()) for call in self.calls]
        return Reply(
            _message(message) if self.calls or 0 in self.finished or said.keys() - {"role"} else None,
            complete=bool(self.choices) and self.choices <= self.finished and self.error is None,
            usage=self.usage,
            error=self.error,
        )


def _begins(piece: Mapping[str, JsonValue], known: Mapping[str, JsonValue]) -> bool:
    """Whether a piece begins another call than the one that is known under its index.

    Some servers say index 0 for every call, or no index at all. Others (vLLM before 0.9) give each piece of one
    call an id of its own, so that arguments without a name go on with what there is.
    """
    name, first = piece.get("id"), known.get("id")
    if name == first and name:
        return False
    body = piece.get("function") or piece.get("custom")
    named = isinstance(body, dict) and bool(body.get("name"))
    if name and first:
        return named or not body
    return named and not name and not isinstance(piece.get("index"), int) and bool(known.get("function"))


def _call(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A folded call in the shape that clients send back."""
    call = {"type": "function", **{key: member for key, member in value.items() if key != "index"}}
    if "custom" not in call:
        function = call.get("function")
        call["function"] = {"name": "", "arguments": "", **(function if isinstance(function, dict) else {})}
    return call


def _payload(line: bytes) -> bytes | None:
    """What a ``data`` line carries; JSON does not mind the spaces around it."""
    return line[5:].strip() if line.startswith(b"data:") else None


def _decoded(data: bytes, decode: Decode) -> JsonValue:
    """The value, or None where there is none to read; half a character is none to a strict decoder."""
    try:
        return decode(data)
    except RecursionError:
        return None
    except ValueError:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _index(choice: Mapping[str, JsonValue]) -> int:
    """Which choice this is; 0 where it does not say."""
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _message(value: Mapping[str, JsonValue]) -> Message | None:
    """The message, or None where the upstream's shape is none that the chat dialect knows."""
    said = {"role": "assistant", **value}
    try:
        return parse_message(_encoded(said), said, 0)
    except (InvalidRequest, RecursionError):
        return None


def _encoded(value: Mapping[str, JsonValue]) -> bytes:
    """The object as JSON. An encoder is set up for whole trees, which an answer's members are but rarely."""
    try:
        return f"{{{', '.join([f'{_quoted(name)}: {_written(member)}' for name, member in value.items()])}}}".encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _written(member: JsonValue) -> str:
    if isinstance(member, str):
        return _quoted(member)
    if member is None:
        return "null"
    return "[]" if member == [] else _JSON(member)
