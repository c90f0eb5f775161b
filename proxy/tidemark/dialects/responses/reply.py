"""Reads an upstream's reply, whole or from the events of a stream, as the assistant's message that the turn stores.

It runs after the upstream, while the client gets the bytes; ``dialects/event_stream.py`` cuts a stream into events.
Source: OpenAI API reference, "The response object" and "Streaming events".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.reply import EMPTY_REPLY, Reply
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.event_stream import EventStream
from tidemark.dialects.responses.items import InputItem, as_piece, join_turn, read_item
from tidemark.dialects.responses.partial_items import PartialItems, StreamEvent

ENDED = ("completed", "incomplete")
"""The states of a reply that came to its end. A reply that reached its longest length is ``incomplete``."""
FINAL_KINDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
"""The types of the events that end a stream."""
_FAILED: Mapping[str, JsonValue] = {"message": "The response failed."}
Form = TypeVar("Form", bound=msgspec.Struct)
FINAL = re.compile(rb'"response\.(?:completed|incomplete|failed|cancelled)"')
"""The type of a last event. Within a text it cannot stand, because its quotation marks are escaped there."""


class ResponseObject(msgspec.Struct):
    """The members of a response that are read. A response repeats the request, whose tools would cost most."""

    id: Any = None
    status: Any = None
    output: Any = None
    usage: Any = None
    error: Any = None


def fold_body(data: bytes) -> Reply:
    """Read a reply that was not streamed. One that a provider still makes in the background is not complete."""
    response = read_struct(data, ResponseObject)
    if response is None:
        return EMPTY_REPLY
    output = response.output if isinstance(response.output, list) else None
    status = response.status or ("completed" if output is not None else None)
    return Reply(
        message_of(output or ()),
        complete=status in ENDED and output is not None,
        usage=response.usage if isinstance(response.usage, dict) else {},
        error=response.error,
        original=data,
    )


class EventFold:
    """Folds the events of a stream.

    The last event repeats the whole output. If an upstream leaves that out, the items' own events give it.
    """

    def __init__(self) -> None:
        self.ended = False
        """Whether the event came that ends a stream."""
        self._items = PartialItems()
        self._final: ResponseObject | None = None
        self._complete = False
        self._error: JsonValue = None
        self._original = b""
        """The newest response object: that of the first event, then that of the last."""

    def add(self, payload: bytes) -> None:
        event = read_struct(payload, StreamEvent)
        if event is None:
            return
        kind = event.type if isinstance(event.type, str) else ""
        if kind in FINAL_KINDS:
            self._end(kind, event)
        elif event.error or (event.message and not kind.startswith("response.")):  # each server has a type of its own
            members = {"code": event.code, "message": event.message, "param": event.param}
            self._error = event.error or members
        else:
            if kind == "response.created":
                self._original = bytes(event.response)
            self._items.add(kind, event)

    def reply(self) -> Reply:
        final = self._final or ResponseObject()
        output = final.output if isinstance(final.output, list) and final.output else self._items.output()
        return Reply(
            message_of(output),
            complete=self._complete and self._error is None,
            usage=final.usage if isinstance(final.usage, dict) else {},
            error=self._error,
            original=self._original,
        )

    def _end(self, kind: str, event: StreamEvent) -> None:
        self.ended = True
        self._original = bytes(event.response)
        self._final = final = read_struct(self._original, ResponseObject) or ResponseObject()
        self._complete = kind.removeprefix("response.") in ENDED
        if not self._complete:
            self._error = final.error or self._error or _FAILED


def message_of(output: Sequence[JsonValue]) -> Message | None:
    """Return the message of a reply's items, or None if there are none or they are not of this API."""
    items: list[InputItem] = []
    for place, value in enumerate(output):
        try:
            item = read_item(encode_json(value), value, f"output[{place}]")
        except (InvalidRequest, RecursionError):
            return None
        items.append(item if item.pieces is not None else as_piece(item))
    return join_turn(items) if items else None


def read_struct(data: bytes, form: type[Form]) -> Form | None:
    """Decode an object's members; None if the bytes are no JSON object.

    A strict decoder refuses unpaired surrogates, so the standard library tries what the decoder refused.
    """
    try:
        return msgspec.json.decode(data, type=form)
    except RecursionError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return _from_dict(value, form) if isinstance(value, dict) else None


def _from_dict(value: Mapping[str, Any], form: type[Form]) -> Form:
    members = {name: value[name] for name in form.__struct_fields__ if name in value}
    if isinstance(members.get("response"), dict):
        members["response"] = msgspec.Raw(json.dumps(members["response"]).encode())
    return form(**members)


def stream_fold() -> EventStream:
    """Begin to read a stream; what comes after the last event, such as ``[DONE]``, is skipped."""
    return EventStream(EventFold(), FINAL)
