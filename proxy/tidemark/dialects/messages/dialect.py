"""The dialect of Anthropic's Messages API: everything that only this format has, behind one object.

The pipeline, the relay and the upstream reach this package through ``Dialect``
(``tidemark/core/conversation/request.py``) only. Source: Anthropic API reference, "Create a Message".

The search function has its definition and its requests here; ``searched_replies.py`` reads the replies.
Source: ``tools`` and ``tool_choice`` in the same reference; the guide "Extended thinking", "Preserving thinking
blocks".
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

from tidemark.core.conversation.cache_marks import CacheMarks
from tidemark.core.conversation.messages import NO_CONTENT, JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import BadImport, InvalidRequest
from tidemark.core.recall.search_function import FUNCTION_DESCRIPTION, FUNCTION_NAME
from tidemark.dialects.bodies import array_of, array_without, body_of, encode_json
from tidemark.dialects.dialect import BaseDialect
from tidemark.dialects.event_stream import EventStream, before_final
from tidemark.dialects.marking import with_mark
from tidemark.dialects.messages import answers, message, reply, writing
from tidemark.dialects.messages.answers import MessagesErrors
from tidemark.dialects.messages.blocks import REASONING
from tidemark.dialects.messages.message import RESULT
from tidemark.dialects.messages.native_compaction import MessagesCompaction
from tidemark.dialects.messages.request import MessagesElements, left_to_upstream
from tidemark.dialects.messages.searched_replies import SearchedMessageBody, SearchedMessageStream
from tidemark.dialects.messages.writing import as_sent
from tidemark.dialects.raw_json import decode_value, read_elements, read_json, read_members
from tidemark.dialects.request_parser import CACHE_BYTES, RequestParser
from tidemark.dialects.searching import PARAMETERS, SearchFunction, member_of, with_function
from tidemark.dialects.signed_thinking import SignedThinking, digest_of_text, named_place, object_in, sealed_text

DEFINITION = encode_json({"name": FUNCTION_NAME, "description": FUNCTION_DESCRIPTION, "input_schema": PARAMETERS})
_UNSIGNED = re.compile(rb'"type"[ \t\n\r]*:[ \t\n\r]*"thinking"')
"""Thinking whose signature never came, or was left out."""


class MessagesSearchFunction(SearchFunction):
    """``SearchFunctionFormat`` of the Messages API; it has no state."""

    definition = DEFINITION.decode()
    no_calls = b'{"type":"none"}'
    whole = staticmethod(SearchedMessageBody)
    stream = staticmethod(SearchedMessageStream)

    def offering(self, request: ModelRequest) -> ModelRequest | None:
        """Return the request with the function at the end of its tools.

        None if the client chooses a tool itself or none, or has one of this name.
        """
        choice = member_of(request.fields, "tool_choice")
        if choice is not None and not (isinstance(choice, dict) and choice.get("type") == "auto"):
            return None
        return with_function(request, DEFINITION)

    def call_message(self, message: Message) -> bytes:
        """Return the answer as a request may have it. Thinking stays whole, and each call gets an id and an input."""
        members: dict[str, JsonValue] = json.loads(as_sent(message.raw))
        content = members["content"]
        blocks = content if isinstance(content, list) else ()
        members["content"] = [_sendable(block, place) for place, block in enumerate(blocks)]
        return encode_json(members)

    def result(self, call: str, text: str) -> bytes:
        """Return a message of the user with one result; those of a round go out as one message."""
        block = {"type": RESULT, "tool_use_id": call, "content": text}
        return encode_json({"role": "user", "content": [block]})


def _sendable(block: JsonValue, place: int) -> JsonValue:
    """Return a call with an id, and with an empty input if the model's is no object. Other blocks stay."""
    if not isinstance(block, dict) or block.get("type") != "tool_use":
        return block
    own = block.get("input")
    return {**block, "id": block.get("id") or f"toolu_search_{place}", "input": own if isinstance(own, dict) else {}}


class MessagesThinking(SignedThinking):
    """``ThinkingFormat`` of the Messages API: ``pipeline/bound_thinking.py`` decides by it which thinking goes out.

    Source: Anthropic's guides "Prefix checks on thinking blocks", "Adaptive thinking" and "Extended thinking".
    """

    is_native: bool = True

    def __init__(self) -> None:
        super().__init__("messages", ("system", "tools"))

    def is_in(self, data: bytes) -> bool:
        if b'thinking"' not in data:
            return False
        return b'"signature"' in data or b'"redacted_thinking"' in data or _UNSIGNED.search(data) is not None

    def key_of(self, element: bytes) -> bytes:
        """Return the digest of an answer's first signature or sealed thinking; empty if it has none."""
        sealed = sealed_text(_content_of(element)) if self.is_in(element) else ""
        return digest_of_text(sealed) if sealed else b""

    def without(self, element: bytes) -> bytes:
        """Return an answer without its thinking; all other blocks keep their bytes."""
        members = read_members(element, bounded=False)
        raws = read_elements(members["content"])
        blocks = _content_of(element)
        remaining = [raw for raw, block in zip(raws, blocks, strict=True) if not _is_thinking(block)]
        if not remaining:
            remaining = [encode_json({"type": "text", "text": NO_CONTENT})]
        return body_of(members, {"content": array_of(remaining)})

    def demanded(self, fields: Mapping[str, bytes], elements: Sequence[bytes]) -> int:
        """Return the place of the tool loop's first answer, if the request ends within one and thinks manually.

        Adaptive thinking, the only kind of most models that check, does not demand it.
        """
        first, is_in_loop = len(elements), False
        if self._thinking_of(fields).get("type") != "enabled":
            return first
        for place in range(len(elements) - 1, -1, -1):
            role = object_in(elements[place]).get("role")
            if is_in_loop and role == "assistant":
                first = place
            elif _is_result(elements[place]):
                is_in_loop = True
            elif role != "system":  # the question of the turn, or an answer that the client has begun
                break
        return first

    def dropping(self, fields: Mapping[str, bytes]) -> Mapping[str, bytes]:
        thinking = {**self._thinking_of(fields), "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        return {**fields, "thinking": encode_json(thinking)}

    def refused_place(self, body: bytes) -> int | None:
        return None if super().refused_place(body) is None else named_place(body)

    @staticmethod
    def _thinking_of(fields: Mapping[str, bytes]) -> Mapping[str, JsonValue]:
        value = decode_value(fields.get("thinking", b"{}"), "thinking")
        return value if isinstance(value, dict) else {}


def _content_of(element: bytes) -> list[JsonValue]:
    """Return the content blocks of an answer; none of any other element."""
    value = object_in(element)
    content = value.get("content") if value.get("role") == "assistant" else None
    return content if isinstance(content, list) else []


def _is_thinking(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") in REASONING


def _is_result(element: bytes) -> bool:
    """Return whether a message has results of tools."""
    content = object_in(element).get("content") if RESULT.encode() in element else None
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(block, dict) and block.get("type") == RESULT for block in blocks)


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

    def marked_members(
        self, fields: Mapping[str, bytes], messages: Sequence[Message], marks: CacheMarks
    ) -> Mapping[str, bytes]:
        """Write the messages with a mark on the summary's block, and the system text with one on its last block."""
        _, _, value = marks.member.partition(b":")
        array = array_of(writing.joined_messages(messages, value))
        if not marks.on_system or "system" not in fields:
            return {"messages": array}
        return {"messages": array, "system": with_mark(fields["system"], marks.member, "text")}

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
