"""Folds the upstream's answer, whole or in events, into the assistant message that the turn stores.

It runs after the upstream, while the client gets the bytes; ``dialects/event_stream.py`` cuts a stream into the events
that are folded here. Source: Anthropic API reference, "Streaming messages"; the accumulation of the official SDK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.reply import EMPTY_REPLY, Reply
from tidemark.core.errors import InvalidRequest
from tidemark.core.report import Usage
from tidemark.dialects.bodies import encode_json, paired
from tidemark.dialects.dialect import HOUR_WRITES, count_of
from tidemark.dialects.messages.message import read_decoded, read_plain
from tidemark.dialects.raw_json import decode_or_none

END = re.compile(rb'"message_stop"|event:[ ]?message_stop')
"""Bytes that stand in the event that ends a stream."""
FINAL = re.compile(END.pattern + rb'|"error"')
"""Bytes that stand in an event after which nothing is waited for."""
_TEXT_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _TextDelta(msgspec.Struct):
    type: str
    text: str


class _TextEvent(msgspec.Struct):
    """An event that has the next piece of a text."""

    type: str
    index: int
    delta: _TextDelta


_TEXT_EVENT = msgspec.json.Decoder(_TextEvent)


def fold_body(data: bytes) -> Reply:
    """Fold an answer that was not streamed."""
    body = decode_or_none(data)
    if not isinstance(body, dict):
        return EMPTY_REPLY
    content, usage = body.get("content"), body.get("usage")
    message = _message(content) if body.get("role") == "assistant" and isinstance(content, list) else None
    return Reply(
        message,
        complete=message is not None and bool(body.get("stop_reason")),
        usage=usage if isinstance(usage, dict) else {},
        error=body.get("error"),
    )


def read_usage(usage: Mapping[str, JsonValue]) -> Usage:
    """Read the counts. What was read from the cache or written to it is not in ``input_tokens``, and is input too."""
    inputs = [count_of(usage.get(name)) for name in INPUTS]
    read, output = count_of(usage.get("cache_read_input_tokens")), count_of(usage.get("output_tokens"))
    lives = usage.get("cache_creation")
    hour = count_of(lives.get(HOUR_WRITES)) if isinstance(lives, dict) else None
    total = None if inputs[0] is None else sum([tokens for tokens in inputs if tokens is not None])
    return Usage(total, read, output, inputs[1], hour)


class MessageFold:
    """``NamedEventFold`` of the Messages API."""

    def __init__(self) -> None:
        self.ended = False
        self._blocks: dict[int, _PartialBlock] = {}
        self.usage: dict[str, JsonValue] = {}
        """The newest of each count."""
        self._has_reason = False
        self._error: JsonValue = None

    def add(self, payload: bytes) -> None:
        """Take in one event; what cannot be read is skipped."""
        if not self._add_text(payload):
            self._add_event(payload)

    def _add_text(self, payload: bytes) -> bool:
        """Take in the next piece of a text, as nearly every event is; return False for any other event."""
        try:
            event = _TEXT_EVENT.decode(payload)
        except (ValueError, RecursionError):
            return False
        if event.type != "content_block_delta" or event.delta.type != "text_delta":
            return False
        block = self._blocks.get(event.index)
        if block is not None:
            block.add_text("text", event.delta.text)
        return True

    def _add_event(self, payload: bytes) -> None:
        data = decode_or_none(payload)
        if not isinstance(data, dict):
            return
        match data.get("type"):
            case "content_block_delta":
                block, delta = self._blocks.get(_index(data)), data.get("delta")
                if block is not None and isinstance(delta, dict):
                    block.add(delta)
            case "content_block_start":
                if isinstance(block := data.get("content_block"), dict):
                    self._blocks[_index(data)] = _PartialBlock(block)
            case "message_start":
                message = data.get("message")
                self._add_usage(message.get("usage") if isinstance(message, dict) else None)
            case "message_delta":
                delta = data.get("delta")
                self._has_reason = self._has_reason or (isinstance(delta, dict) and bool(delta.get("stop_reason")))
                self._add_usage(data.get("usage"))
            case "message_stop":
                self.ended = True
            case "error":
                self._error = data.get("error") or data
            case _:
                self._error = self._error or data.get("error")  # an upstream's error in another dialect

    def reply(self) -> Reply:
        blocks: list[JsonValue] = [self._blocks[index].value() for index in sorted(self._blocks)]
        is_whole = self.ended and self._has_reason and self._error is None
        message = _message(blocks) if blocks or is_whole else None
        return Reply(message, complete=is_whole, usage=self.usage, error=self._error)

    def _add_usage(self, usage: JsonValue) -> None:
        """Take in counts: the newest of each counts, because those of ``message_delta`` are sums."""
        if isinstance(usage, dict):
            self.usage.update({name: count for name, count in usage.items() if count is not None})


class _PartialBlock:
    """A content block that comes in pieces."""

    __slots__ = ("_block", "_texts")

    def __init__(self, block: Mapping[str, JsonValue]) -> None:
        self._block = dict(block)
        self._texts: dict[str, list[str]] = {}

    def add(self, delta: Mapping[str, JsonValue]) -> None:
        """Take in one delta; of a kind that nobody knows yet, texts are joined and lists extended."""
        kind = delta.get("type")
        name = _TEXT_DELTAS.get(kind) if isinstance(kind, str) else None
        text = delta.get(name) if name is not None else None
        if name is not None and isinstance(text, str):
            self.add_text(name, text)
            return
        if kind == "citations_delta":
            self._extend("citations", [delta.get("citation")])
            return
        for member, value in delta.items():
            if member == "type":
                continue
            if member != "signature" and isinstance(value, str):
                self.add_text(member, value)
            elif isinstance(value, list):
                self._extend(member, value)
            elif value is not None:
                self._block[member] = value

    def add_text(self, name: str, text: str) -> None:
        """Take in the next piece of a member that is a text."""
        self._texts.setdefault(name, []).append(text)

    def value(self) -> dict[str, JsonValue]:
        """Return the block as joined so far."""
        block = dict(self._block)
        for name, pieces in self._texts.items():
            text = "".join(pieces)
            if name == "partial_json":
                with suppress(ValueError, RecursionError):  # an input that was cut off stays empty
                    block["input"] = json.loads(text or "{}")
                continue
            before = block.get(name)
            block[name] = paired((before if isinstance(before, str) else "") + text)
        return block

    def _extend(self, name: str, values: list[JsonValue]) -> None:
        before = self._block.get(name)
        self._block[name] = [*(before if isinstance(before, list) else ()), *values]


def _message(content: list[JsonValue]) -> Message | None:
    """Return the message, or None if the upstream's blocks are none."""
    value = {"role": "assistant", "content": content}
    try:
        raw = encode_json(value)
        return read_plain(raw, value) or read_decoded(raw, value, "reply")[0]
    except (InvalidRequest, RecursionError):
        return None


def _index(data: Mapping[str, JsonValue]) -> int:
    index = data.get("index")
    return index if isinstance(index, int) else 0
