"""The dialect of Anthropic's Messages API: everything that only this format has, behind one object.

The pipeline, the relay and the upstream reach this package through ``Dialect``
(``tidemark/core/conversation/request.py``) only. Source: Anthropic API reference, "Create a Message".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import BadImport, InvalidRequest
from tidemark.dialects.bodies import array_of, array_without, body_of
from tidemark.dialects.dialect import BaseDialect
from tidemark.dialects.event_stream import EventStream, before_final
from tidemark.dialects.messages import answers, message, reply, writing
from tidemark.dialects.messages.answers import MessagesErrors
from tidemark.dialects.messages.bound_thinking import MessagesThinking
from tidemark.dialects.messages.native_compaction import MessagesCompaction
from tidemark.dialects.messages.request import MessagesElements, left_to_upstream
from tidemark.dialects.messages.search_function import MessagesSearchFunction
from tidemark.dialects.raw_json import read_elements, read_json
from tidemark.dialects.request_parser import CACHE_BYTES, RequestParser


class MessagesDialect(MessagesErrors, BaseDialect):
    """``Dialect``. Its state is the parser's cache of messages.

    :param cache_bytes: memory for parsed messages
    """

    name = "messages"
    path = "/messages"
    messages_member = "messages"
    system_member = "system"
    tool_members = ("tools",)
    search_function = MessagesSearchFunction()
    bound_thinking = MessagesThinking()
    native_compaction = MessagesCompaction()

    own_message = staticmethod(writing.own_message)
    write = staticmethod(writing.write_message)
    is_message = staticmethod(message.is_message)
    as_sent = staticmethod(writing.as_sent)
    replace_middle = staticmethod(writing.replace_middle)
    fold_body = staticmethod(reply.fold_body)
    usage = staticmethod(reply.read_usage)
    answer = staticmethod(answers.own_message_body)
    answer_events = staticmethod(answers.own_message_events)

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.parser = RequestParser(self, MessagesElements(), cache_bytes)

    async def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        request = await self.parser.parse(body, anonymous=anonymous, bounded=bounded)
        reason = left_to_upstream(request.fields, request.messages)
        return replace(request, left_to_upstream=reason) if reason else request

    def parse_messages(self, raws: Sequence[bytes]) -> tuple[Message, ...]:
        return tuple([message.read_message(raw, index) for index, raw in enumerate(raws)])

    def parse_lines(self, data: bytes) -> list[Message]:
        messages: list[Message] = []
        for number, line in enumerate(data.splitlines(), 1):
            try:
                messages += message.read_element(line, number) if line.strip() else ()
            except InvalidRequest as error:
                raise BadImport(f"line {number}: {error}") from error
        return messages

    def array(self, messages: Sequence[Message], fields: Mapping[str, bytes] | None = None) -> bytes:
        """Write the messages; those that are pieces of one user turn are one again."""
        mark = b"" if fields is None else writing.summary_mark(fields, messages)
        return array_of(writing.joined_messages(messages, mark))

    def array_without(self, array: bytes, messages: Sequence[Message], places: Collection[int]) -> bytes:
        """Remove messages; if a user turn was several, it is written again."""
        if read_elements(array) == [message.raw for message in messages]:
            return array_without(array, messages, places)
        remaining = [message for place, message in enumerate(messages) if place not in places]
        return array_of(writing.joined_messages(remaining))

    def body_with_raw(self, request: ModelRequest, raws: Sequence[bytes]) -> bytes:
        return body_of(request.fields, {"messages": array_of(writing.joined_raws(raws))})

    def fold_stream(self) -> EventStream:
        return EventStream(reply.MessageFold(), reply.FINAL)

    def before_end(self, data: bytes) -> bytes:
        """Return the events before ``message_stop``."""
        return before_final(data, reply.END)

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        value = read_json(body)
        if isinstance(value, dict) and value.get("type") == "message" and status < HTTPStatus.BAD_REQUEST:
            return b"\n\n" + answers.events_of(value)
        return self.upstream_error_event(status, value)
