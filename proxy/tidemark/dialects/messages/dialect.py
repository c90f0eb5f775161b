"""The dialect of Anthropic's Messages API: everything that only this format has, behind one object.

The pipeline, the relay and the upstream reach this package through ``Dialect``
(``tidemark/core/conversation/request.py``) only. Source: Anthropic API reference, "Create a Message".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.errors import BadImport, InvalidRequest
from tidemark.core.report import OwnAnswer, Usage
from tidemark.dialects.bodies import array_of, array_without, body_of
from tidemark.dialects.event_stream import EventStream, before_final
from tidemark.dialects.messages.answers import events_of, own_message_body, own_message_events
from tidemark.dialects.messages.bound_thinking import MessagesThinking
from tidemark.dialects.messages.clipping import replace_middle
from tidemark.dialects.messages.echo import as_sent
from tidemark.dialects.messages.errors import MessagesErrors
from tidemark.dialects.messages.message import is_message, read_element, read_message
from tidemark.dialects.messages.native_compaction import MessagesCompaction
from tidemark.dialects.messages.reply import END, FINAL, MessageFold, fold_body, read_usage
from tidemark.dialects.messages.request import MessagesElements, left_to_upstream
from tidemark.dialects.messages.search_function import MessagesSearchFunction
from tidemark.dialects.messages.writing import joined_messages, joined_raws, own_message, summary_mark, write_message
from tidemark.dialects.raw_json import read_elements
from tidemark.dialects.request_parser import CACHE_BYTES, RequestParser


class MessagesDialect(MessagesErrors):
    """``Dialect``. Its state is the parser's cache of messages.

    :param cache_bytes: memory for parsed messages
    """

    name = "messages"
    path: str = "/messages"
    messages_member = "messages"
    system_member: str = "system"
    tool_members: tuple[str, ...] = ("tools",)
    responses: ResponseFormat | None = None
    stream_counts = None
    search_function = MessagesSearchFunction()
    bound_thinking = MessagesThinking()
    native_compaction = MessagesCompaction()

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.parser = RequestParser(self, MessagesElements(), cache_bytes)

    async def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """Parse a body; in a thread where much of it is new."""
        request = await self.parser.parse(body, anonymous=anonymous, bounded=bounded)
        reason = left_to_upstream(request.fields, request.messages)
        return replace(request, left_to_upstream=reason) if reason else request

    def parse_messages(self, raws: Sequence[bytes]) -> tuple[Message, ...]:
        """Parse single messages, without the cache."""
        return tuple([read_message(raw, index) for index, raw in enumerate(raws)])

    def parse_lines(self, data: bytes) -> list[Message]:
        """Parse an export: one message a line."""
        messages: list[Message] = []
        for number, line in enumerate(data.splitlines(), 1):
            try:
                messages += read_element(line, number) if line.strip() else ()
            except InvalidRequest as error:
                raise BadImport(f"line {number}: {error}") from error
        return messages

    def request_of(self, model: str, messages: Sequence[Message]) -> ModelRequest:
        """Build the request that a client would send for these messages."""
        fields = {"model": json.dumps(model).encode(), "messages": array_of(joined_messages(messages))}
        return ModelRequest(body_of(fields, {}), fields, model, tuple(messages), self)

    def body_with(self, request: ModelRequest, messages: Sequence[Message], *, model: str) -> bytes:
        """Write the request's body with other messages and another model."""
        replaced = {"messages": array_of(joined_messages(messages, summary_mark(request.fields, messages)))}
        if model != request.model:
            replaced["model"] = json.dumps(model).encode()
        return body_of(request.fields, replaced)

    def body_with_model(self, request: ModelRequest, model: str) -> bytes:
        """Write the request's body with another model."""
        return body_of(request.fields, {"model": json.dumps(model).encode()})

    def body_with_raw(self, request: ModelRequest, raws: Sequence[bytes]) -> bytes:
        """Write the request's body with messages that are bytes already."""
        return body_of(request.fields, {"messages": array_of(joined_raws(raws))})

    def raws_of(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the JSON of each message; those that Tidemark made have none yet."""
        return [message.raw or own_message(message.text) for message in messages]

    def write(self, message: Message) -> bytes:
        """Write a message of any dialect as one of this."""
        return write_message(message)

    def without(self, request: ModelRequest, places: Collection[int]) -> ModelRequest:
        """Remove the messages at these places; where a user turn was several, it is written again."""
        before = request.fields["messages"]
        remaining = tuple([message for place, message in enumerate(request.messages) if place not in places])
        if read_elements(before) == [message.raw for message in request.messages]:
            after = array_without(before, request.messages, places)
        else:
            after = array_of(joined_messages(remaining))
        fields = {**request.fields, "messages": after}
        is_unique = request.body.count(before) == 1  # else an unknown member has the same bytes
        body = request.body.replace(before, after) if is_unique else body_of(fields, {})
        return replace(request, body=body, fields=fields, messages=remaining)

    def is_message(self, raw: bytes) -> bool:
        """Return whether stored bytes are a message, without a full parse."""
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
        """Read a message."""
        return fold_body(data)

    def fold_stream(self) -> EventStream:
        """Begin to read a stream of events."""
        return EventStream(MessageFold(), FINAL)

    def before_end(self, data: bytes) -> bytes:
        """Return the events before ``message_stop``."""
        return before_final(data, END)

    def usage(self, usage: Mapping[str, JsonValue]) -> Usage:
        """Read the counts of input, cached input and output."""
        return read_usage(usage)

    def answer(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer as a message."""
        return own_message_body(request, answer)

    def answer_events(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer as a whole stream of events."""
        return own_message_events(request, answer)

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        """Write an upstream's whole reply as the events of a stream that has begun."""
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError):
            reply = None
        if isinstance(reply, dict) and reply.get("type") == "message" and status < HTTPStatus.BAD_REQUEST:
            return b"\n\n" + events_of(reply)
        return self.upstream_error_event(status, reply)
