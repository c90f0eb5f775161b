"""The dialect of OpenAI's Responses API: everything that only this format has, behind one object.

The pipeline, the relay and the upstream reach this package through ``Dialect``
(``tidemark/core/conversation/request.py``) only. Source: OpenAI API reference, "Create a model response".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.report import OwnAnswer, Usage
from tidemark.dialects.bodies import array_of, body_of
from tidemark.dialects.event_stream import EventStream, before_final
from tidemark.dialects.request_parser import CACHE_BYTES, RequestParser
from tidemark.dialects.responses.answer import event_stream, response_body
from tidemark.dialects.responses.bound_thinking import ResponsesThinking
from tidemark.dialects.responses.clipping import replace_middle
from tidemark.dialects.responses.compaction import TRIGGER, compaction_triggers
from tidemark.dialects.responses.echo import as_sent
from tidemark.dialects.responses.errors import ResponsesErrors
from tidemark.dialects.responses.items import ROLES
from tidemark.dialects.responses.removal import array_without
from tidemark.dialects.responses.reply import fold_body
from tidemark.dialects.responses.request import (
    COMPACTED_BY_PROVIDER,
    STANDS_IN,
    InputItems,
    earlier_response,
    left_to_upstream,
    read_stored,
)
from tidemark.dialects.responses.search_function import ResponsesSearchFunction
from tidemark.dialects.responses.state import StoredResponseFormat
from tidemark.dialects.responses.stream import FINAL, stream_fold
from tidemark.dialects.responses.writing import system_item, write_message

MAX_COUNT = 2**53
"""The largest number of tokens that is believed: larger whole numbers cannot be added up exactly."""


class ResponsesDialect(ResponsesErrors):
    """``Dialect``. Its state is the parser's cache of items.

    :param cache_bytes: memory for parsed items
    """

    name = "responses"
    path: str = "/responses"
    messages_member = "input"
    system_member: str = "instructions"
    tool_members: tuple[str, ...] = ("tools",)
    responses: ResponseFormat | None = StoredResponseFormat()
    stream_counts = None
    search_function = ResponsesSearchFunction()
    bound_thinking = ResponsesThinking()
    native_compaction = None

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.parser = RequestParser(self, InputItems(), cache_bytes, STANDS_IN)

    async def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """Parse a body; in a thread where much of it is new."""
        request = await self.parser.parse(body, anonymous=anonymous, bounded=bounded)
        earlier, reason = earlier_response(request.fields), left_to_upstream(request.fields)
        triggers = compaction_triggers(request.fields)
        if not (earlier or reason or triggers):
            return request
        if 0 in triggers:
            reason = COMPACTED_BY_PROVIDER.format(member=TRIGGER)
        return replace(request, continues=earlier, left_to_upstream=reason, compaction_triggers=triggers)

    def parse_messages(self, raws: Sequence[bytes]) -> tuple[Message, ...]:
        """Parse stored messages, without the cache; each is the items of one turn."""
        return read_stored(raws)

    def parse_lines(self, data: bytes) -> list[Message]:
        """Parse an export: the items of one message a line."""
        return list(read_stored([line for line in data.splitlines() if line.strip()]))

    def request_of(self, model: str, messages: Sequence[Message]) -> ModelRequest:
        """Build the request that a client would send for these messages."""
        fields = {"model": json.dumps(model).encode(), "input": array_of(self.raws_of(messages))}
        return ModelRequest(body_of(fields, {}), fields, model, tuple(messages), self)

    def body_with(self, request: ModelRequest, messages: Sequence[Message], *, model: str) -> bytes:
        """Write the request's body with other messages and another model."""
        replaced = {"input": array_of(self.raws_of(messages))}
        if model != request.model:
            replaced["model"] = json.dumps(model).encode()
        return body_of(request.fields, replaced)

    def body_with_model(self, request: ModelRequest, model: str) -> bytes:
        """Write the request's body with another model."""
        return body_of(request.fields, {"model": json.dumps(model).encode()})

    def body_with_raw(self, request: ModelRequest, raws: Sequence[bytes]) -> bytes:
        """Write the request's body with messages that are bytes already."""
        return body_of(request.fields, {"input": array_of(raws)})

    def raws_of(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the items of each message; those that Tidemark made have none yet."""
        return [message.raw or system_item(message.text) for message in messages]

    def write(self, message: Message) -> bytes:
        """Write a message of any dialect as items."""
        return write_message(message)

    def without(self, request: ModelRequest, places: Collection[int]) -> ModelRequest:
        """Remove the messages at these places; all other bytes stay, those between items too."""
        before = request.fields["input"]
        after = array_without(before, request.messages, places)
        fields = {**request.fields, "input": after}
        remaining = tuple([message for place, message in enumerate(request.messages) if place not in places])
        is_unique = request.body.count(before) == 1  # else an unknown member has the same bytes
        body = request.body.replace(before, after) if is_unique else body_of(fields, {})
        return replace(request, body=body, fields=fields, messages=remaining)

    def is_message(self, raw: bytes) -> bool:
        """Return whether stored bytes are the items of a message, without a full parse."""
        return is_message(raw)

    def as_sent(self, raw: bytes) -> bytes:
        """Return a stored message as a client would send it back."""
        return as_sent(raw)

    def replace_middle(self, message: Message, first: int, last: int, mark: str) -> Message:
        """Replace the characters from ``first`` to ``last`` of a message's text by a mark."""
        return replace_middle(message, first, last, mark)

    def cached_members(self, request: ModelRequest) -> Mapping[str, bytes] | None:
        """Return None: a summarizer is asked in chat completions, so it cannot go on with these bytes."""
        del request
        return None

    def fold_body(self, data: bytes) -> Reply:
        """Read a response."""
        return fold_body(data)

    def fold_stream(self) -> EventStream:
        """Begin to read a stream of events."""
        return stream_fold()

    def before_end(self, data: bytes) -> bytes:
        """Return the events before the last one."""
        return before_final(data, FINAL)

    def usage(self, usage: Mapping[str, JsonValue]) -> Usage:
        """Read the counts of input, cached input and output."""
        details = usage.get("input_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        return Usage(_count(usage.get("input_tokens")), cached, _count(usage.get("output_tokens")))

    def answer(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer as a response."""
        return response_body(request, answer)

    def answer_events(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer as a whole stream of events."""
        return event_stream(request, answer)


class _Head(msgspec.Struct):
    """An item, of which only its kind is decoded."""

    type: str | None = None
    role: str | None = None


_HEADS = msgspec.json.Decoder(list[_Head])


def is_message(raw: bytes) -> bool:
    """Return whether stored bytes are items: objects with a type or a known role, with commas between them."""
    try:
        try:
            heads = _HEADS.decode(f"[{raw.decode()}]")  # the decoder does not look at bytes that it skips
        except msgspec.MsgspecError:  # json accepts unpaired surrogates: clients cut emoji in two
            items = json.loads(b"[" + raw + b"]")
            heads = [_Head(item.get("type"), item.get("role")) for item in items]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False
    return bool(heads) and all(head.role in ROLES if head.role else bool(head.type) for head in heads)


def _count(value: JsonValue) -> int | None:
    """Read a number of tokens; an upstream may send anything in its place."""
    return value if type(value) is int and abs(value) <= MAX_COUNT else None
