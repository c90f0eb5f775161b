"""Folding: the upstream's answer, streamed or whole, becomes the assistant message that was said.

Last step on the road of a request, after the client has its bytes. Sources: OpenAI API reference, "The chat
completion chunk object"; the event-stream format of the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from .chat import parse_message
from .errors import InvalidRequest
from .messages import JsonValue, Message

Decode = Callable[[bytes], JsonValue]
"""JSON bytes to a value; raises ValueError. An argument, so that the outer rooms choose the fastest."""
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Reply:
    """What an upstream answered."""

    message: Message | None
    """The first choice's message; None when there was none to read."""
    complete: bool
    """Whether the answer came to its end: a ``finish_reason`` was given."""
    usage: Mapping[str, JsonValue] = field(default_factory=dict)
    error: JsonValue = None
    """The upstream's own error, told in the stream."""


NOTHING = Reply(None, complete=False)


def fold_stream(data: bytes, decode: Decode) -> Reply:
    """Fold the whole of an event stream. An event that is no JSON is passed over: the client has had it anyway."""
    fold = _Fold()
    for payload in stream_events(data):
        if payload == DONE:
            continue
        try:
            chunk = decode(payload)
        except ValueError:
            continue
        if isinstance(chunk, dict):
            fold.add(chunk)
    return fold.reply()


def fold_body(data: bytes, decode: Decode) -> Reply:
    """Fold an answer that was not streamed."""
    try:
        body = decode(data)
    except ValueError:
        return NOTHING
    if not isinstance(body, dict):
        return NOTHING
    choice = _first_choice(body)
    message = choice.get("message")
    usage = body.get("usage")
    return Reply(
        _message(message) if isinstance(message, dict) else None,
        complete=isinstance(message, dict),
        usage=usage if isinstance(usage, dict) else {},
        error=body.get("error"),
    )


def stream_events(data: bytes) -> Iterator[bytes]:
    """The payload of every event that has one; its ``data`` lines are joined by line ends."""
    for event in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
        if lines:
            yield b"\n".join(lines)


def ends_stream(tail: bytes) -> bool:
    """Whether an event stream's newest bytes say that it is over."""
    return tail.rstrip(b"\r\n").endswith((b"data: [DONE]", b"data:[DONE]"))


class _Fold:
    """The first choice of a stream so far."""

    def __init__(self) -> None:
        self.fields: dict[str, JsonValue] = {}
        self.pieces: dict[str, list[str]] = {}
        self.calls: dict[int, dict[str, JsonValue]] = {}
        self.functions: dict[int, dict[str, JsonValue]] = {}
        self.finished = False
        self.usage: Mapping[str, JsonValue] = {}
        self.error: JsonValue = None

    def add(self, chunk: Mapping[str, JsonValue]) -> None:
        """Take in one chunk."""
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        self.error = chunk.get("error", self.error)
        choice = _first_choice(chunk)
        self.finished = self.finished or choice.get("finish_reason") is not None
        delta = choice.get("delta")
        for key, value in delta.items() if isinstance(delta, dict) else ():
            if key == "tool_calls" and isinstance(value, list):
                for position, call in enumerate(value):
                    self.add_call(call, position)
            elif isinstance(value, str) and key != "role":
                self.pieces.setdefault(key, []).append(value)
            elif value is not None:
                self.fields[key] = value

    def add_call(self, call: JsonValue, position: int) -> None:
        """Take in a piece of a tool call; pieces of one call share their ``index``."""
        if not isinstance(call, dict):
            return
        index = call.get("index")
        place = index if isinstance(index, int) else position
        whole = self.calls.setdefault(place, {"type": "function"})
        for key in ("id", "type"):
            if call.get(key):
                whole[key] = call[key]
        piece = call.get("function")
        if isinstance(piece, dict):
            function = self.functions.setdefault(place, {"name": "", "arguments": ""})
            whole["function"] = function
            for key, value in piece.items():
                function[key] = str(function.get(key, "")) + value if isinstance(value, str) else value

    def reply(self) -> Reply:
        """What was folded."""
        message: dict[str, JsonValue] = {"role": "assistant", "content": None, **self.fields}
        message |= {key: "".join(pieces) for key, pieces in self.pieces.items()}
        if self.calls:
            message["tool_calls"] = list(self.calls.values())
        said = bool(self.pieces or self.calls or self.finished)
        return Reply(
            _message(message) if said else None,
            complete=self.finished and self.error is None,
            usage=self.usage,
            error=self.error,
        )


def _first_choice(body: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """The choice of index 0, which is the one that conversations go on with; empty where there is none."""
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            return choice
    return {}


def _message(value: Mapping[str, JsonValue]) -> Message | None:
    """The message, or None where the upstream's shape is none that the chat dialect knows."""
    said = {"role": "assistant", **value}
    try:
        return parse_message(json.dumps(said, ensure_ascii=False).encode(), said, 0)
    except InvalidRequest:
        return None
