"""Folds the upstream's answer, whole or in chunks, into the assistant message that the turn stores.

It runs after the upstream, while the client gets the bytes; ``dialects/event_stream.py`` cuts a stream into events.
Source: OpenAI API reference, "The chat completion chunk object".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as _quoted

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.reply import EMPTY_REPLY, Reply
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.chat.deltas import PartialObject
from tidemark.dialects.chat.message import parse_message
from tidemark.dialects.event_stream import CutStream
from tidemark.dialects.raw_json import decode_or_none

Decode = Callable[[bytes], JsonValue]
"""Decodes JSON bytes, or raises ValueError or RecursionError. The dialect passes the fastest decoder."""
_JSON = json.JSONEncoder(ensure_ascii=False).encode
DONE = b"[DONE]"
_FINAL = re.compile(rb"\[DONE\]")


def fold_body(data: bytes, decode: Decode) -> Reply:
    """Fold an answer that was not streamed."""
    body = decode_or_none(data, decode)
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


class ChunkFold:
    """Folds the first choice of a stream."""

    def __init__(self) -> None:
        self.message = PartialObject()
        self.calls: list[PartialObject] = []
        self.newest: dict[int | tuple[int, str], PartialObject] = {}
        """The newest call of each ``index``, and of each ``index`` with an id."""
        self.choices: set[int] = set()
        self.finished: set[int] = set()
        self.usage: Mapping[str, JsonValue] = {}
        self.error: JsonValue = None
        self.done = False
        """Whether ``[DONE]`` came. Some servers leave ``finish_reason`` null to the end, as OpenAI did for audio."""

    def add(self, chunk: Mapping[str, JsonValue]) -> None:
        if self._add_text(chunk):
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

    def _add_text(self, chunk: Mapping[str, JsonValue]) -> bool:
        """Take in a chunk that is only the next piece of the first choice's text, as nearly every chunk is.

        Return False if it is another chunk.
        """
        choices = chunk.get("choices")
        if not isinstance(choices, list) or len(choices) != 1 or chunk.get("usage") is not None or chunk.get("error"):
            return False
        choice = choices[0]
        if not isinstance(choice, dict) or choice.get("finish_reason") or choice.get("index") != 0:
            return False
        delta = choice.get("delta")
        if 0 not in self.choices or not isinstance(delta, dict) or len(delta) != 1:
            return False
        return self.message.append_text("content", delta.get("content"))

    def add_delta(self, delta: Mapping[str, JsonValue]) -> None:
        """Take in a delta of the first choice."""
        if "tool_calls" in delta:
            calls = delta["tool_calls"]
            for position, call in enumerate(calls if isinstance(calls, list) else ()):
                if isinstance(call, dict):
                    self.call_for(call, position).fold(call)
            delta = {key: value for key, value in delta.items() if key != "tool_calls"}
        if delta:
            self.message.fold(delta)

    def call_for(self, piece: Mapping[str, JsonValue], position: int) -> PartialObject:
        """Return the call that a piece belongs to: the newest of its ``index``, unless the piece begins one."""
        index, name = piece.get("index"), piece.get("id")
        place = index if isinstance(index, int) else position
        if not isinstance(name, str):
            name = ""
        call = (name and self.newest.get((place, name))) or self.newest.get(place)
        if call is None or _begins_call(piece, call.members):
            call = PartialObject()
            self.calls.append(call)
        self.newest[place] = call
        if name:
            self.newest[place, name] = call
        return call

    def reply(self) -> Reply:
        members = self.message.value()
        message: dict[str, JsonValue] = {"role": "assistant", "content": None, **members}
        if self.calls:
            message["tool_calls"] = [_call(call.value()) for call in self.calls]
        says = bool(self.calls) or any(member for name, member in members.items() if name != "role")
        is_over = self.choices <= self.finished or (self.done and says)
        return Reply(
            _message(message) if self.calls or 0 in self.finished or members.keys() - {"role"} else None,
            complete=bool(self.choices) and is_over and self.error is None,
            usage=self.usage,
            error=self.error,
        )


def _begins_call(piece: Mapping[str, JsonValue], newest: Mapping[str, JsonValue]) -> bool:
    """Return whether a piece begins another call than the newest one of its index.

    Some servers send index 0 for every call, or no index. Others (vLLM before 0.9) send a new id with each piece of one
    call; therefore arguments without a function's name continue the newest call.
    """
    name, first = piece.get("id"), newest.get("id")
    if name == first and name:
        return False
    body = piece.get("function") or piece.get("custom")
    has_name = isinstance(body, dict) and bool(body.get("name"))
    if name and first:
        return has_name or not body
    return has_name and not name and not isinstance(piece.get("index"), int) and bool(newest.get("function"))


def _call(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a folded call in the shape that clients send back."""
    call = {"type": "function", **{key: member for key, member in value.items() if key != "index"}}
    if "custom" not in call:
        function = call.get("function")
        call["function"] = {"name": "", "arguments": "", **(function if isinstance(function, dict) else {})}
    return call


def _index(choice: Mapping[str, JsonValue]) -> int:
    """Return the index of a choice; 0 if it has none."""
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _message(value: Mapping[str, JsonValue]) -> Message | None:
    """Return the message, or None if the upstream's object is not a chat message."""
    members = {"role": "assistant", **value}
    try:
        return parse_message(_encode(members), members, 0)
    except (InvalidRequest, RecursionError):
        return None


def _encode(value: Mapping[str, JsonValue]) -> bytes:
    """Encode an object member by member: most are strings, and a JSON encoder is slower to set up for each."""
    try:
        members: list[str] = []
        for name, member in value.items():
            encoded = _quoted(member) if isinstance(member, str) else _encode_member(member)
            members.append(f"{_quoted(name)}: {encoded}")
        return f"{{{', '.join(members)}}}".encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _encode_member(member: JsonValue) -> str:
    if member is None:
        return "null"
    return "[]" if member == [] else _JSON(member)


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
        if self.ended:
            return
        payload = self._joined(event) if b"\n" in event else _payload(event)
        if not payload:
            return
        if payload == DONE:
            self.ended = self._chunks.done = True
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
                self.ended = self._chunks.done = True
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
