"""Folding: the upstream's answer, streamed or whole, becomes the assistant message that was said.

On the road of a request after the upstream, while the client gets its bytes; ``stream.py`` cuts a stream into
what is folded here. Source: OpenAI API reference, "The chat completion chunk object".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as _quoted

from proxy.core.conversation.messages import JsonValue, Message
from proxy.core.conversation.reply import EMPTY_REPLY, Reply
from proxy.core.errors import InvalidRequest
from proxy.dialects.chat.deltas import Pieces
from proxy.dialects.chat.message import parse_message

Decode = Callable[[bytes], JsonValue]
"""JSON bytes to a value; raises ValueError or RecursionError. An argument: the outer rooms choose the fastest."""
_JSON = json.JSONEncoder(ensure_ascii=False).encode


def fold_body(data: bytes, decode: Decode) -> Reply:
    """Fold an answer that was not streamed."""
    body = decoded(data, decode)
    if not isinstance(body, dict):
        return EMPTY_REPLY
    choices, usage = body.get("choices"), body.get("usage")
    message: JsonValue = None
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and _index(choice) == 0:
            message = choice.get("message")
            break
    complete = isinstance(message, dict)
    return Reply(
        _message(message) if isinstance(message, dict) else None,
        complete,
        usage if isinstance(usage, dict) else {},
        body.get("error"),
    )


class Fold:
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


def decoded(data: bytes, decode: Decode) -> JsonValue:
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
        members: list[str] = []
        for name, member in value.items():
            written = _quoted(member) if isinstance(member, str) else _written(member)
            members.append(f"{_quoted(name)}: {written}")
        return f"{{{', '.join(members)}}}".encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _written(member: JsonValue) -> str:
    if member is None:
        return "null"
    return "[]" if member == [] else _JSON(member)
