"""The dialect of chat completions: everything that only OpenAI's format has, behind one object.

The pipeline, the relay and the upstream reach this package through ``Dialect``
(``tidemark/core/conversation/request.py``) only. Source: OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus

import msgspec

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.report import OwnAnswer, Usage
from tidemark.dialects.bodies import array_of, array_without, body_of
from tidemark.dialects.chat.bound_thinking import ChatThinking
from tidemark.dialects.chat.clipping import replace_middle
from tidemark.dialects.chat.completion import chunks_of, completion, event_stream
from tidemark.dialects.chat.echo import as_sent
from tidemark.dialects.chat.jsonl import read_lines
from tidemark.dialects.chat.message import is_message
from tidemark.dialects.chat.prompt_cache import cached_members
from tidemark.dialects.chat.reply import decode_or_none, fold_body
from tidemark.dialects.chat.request import ChatElements, read_messages
from tidemark.dialects.chat.search_function import ChatSearchFunction
from tidemark.dialects.chat.stream import StreamFold
from tidemark.dialects.chat.stream_counts import ChatStreamCounts
from tidemark.dialects.chat.writing import write_message
from tidemark.dialects.openai_errors import OpenAIErrors
from tidemark.dialects.request_parser import CACHE_BYTES, RequestParser

MAX_COUNT = 2**53
"""The largest number of tokens that is believed: larger whole numbers cannot be added up exactly."""
RENDERED = 128
"""System messages of our own whose bytes are cached; a summary goes out turn after turn."""


class ChatDialect(OpenAIErrors):
    """``Dialect``. Its state is the parser's cache of messages.

    :param cache_bytes: memory for parsed messages
    """

    name = "chat"
    path: str = "/chat/completions"
    messages_member = "messages"
    system_member: str = ""
    tool_members: tuple[str, ...] = ("tools", "functions")
    responses: ResponseFormat | None = None
    stream_counts = ChatStreamCounts()
    search_function = ChatSearchFunction()
    bound_thinking = ChatThinking()
    native_compaction = None

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.parser = RequestParser(self, ChatElements(), cache_bytes)

    def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> Awaitable[ModelRequest]:
        """Parse a body; in a thread where much of it is new."""
        return self.parser.parse(body, anonymous=anonymous, bounded=bounded)

    def parse_messages(self, raws: Sequence[bytes]) -> tuple[Message, ...]:
        """Parse single messages, without the cache."""
        return read_messages(raws)

    def parse_lines(self, data: bytes) -> list[Message]:
        """Parse an export: one message a line."""
        return [line.message for line in read_lines(data)]

    def request_of(self, model: str, messages: Sequence[Message]) -> ModelRequest:
        """Build the request that a client would send for these messages."""
        fields = {"model": json.dumps(model).encode(), "messages": array_of(self.raws_of(messages))}
        return ModelRequest(body_of(fields, {}), fields, model, tuple(messages), self)

    def body_with(self, request: ModelRequest, messages: Sequence[Message], *, model: str) -> bytes:
        """Write the request's body with other messages and another model."""
        replaced = {"messages": array_of(self.raws_of(messages))}
        if model != request.model:
            replaced["model"] = json.dumps(model).encode()
        return body_of(request.fields, replaced)

    def body_with_model(self, request: ModelRequest, model: str) -> bytes:
        """Write the request's body with another model."""
        return body_of(request.fields, {"model": json.dumps(model).encode()})

    def body_with_raw(self, request: ModelRequest, raws: Sequence[bytes]) -> bytes:
        """Write the request's body with messages that are bytes already."""
        return body_of(request.fields, {"messages": array_of(raws)})

    def raws_of(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the JSON of each message; those that Tidemark made have none yet."""
        return [message.raw or system_json(message.text) for message in messages]

    def write(self, message: Message) -> bytes:
        """Write a message of any dialect as a chat message."""
        return write_message(message)

    def without(self, request: ModelRequest, places: Collection[int]) -> ModelRequest:
        """Remove the messages at these places; all other bytes stay, those between messages too."""
        before = request.fields["messages"]
        after = array_without(before, request.messages, places)
        fields = {**request.fields, "messages": after}
        remaining = tuple([message for place, message in enumerate(request.messages) if place not in places])
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
        """Return the members that belong to the prompt cache."""
        return cached_members(request)

    def fold_body(self, data: bytes) -> Reply:
        """Read a completion."""
        return fold_body(data, msgspec.json.decode)

    def fold_stream(self) -> StreamFold:
        """Begin to read a stream of chunks."""
        return StreamFold(msgspec.json.decode)

    def before_end(self, data: bytes) -> bytes:
        """Return the events before ``[DONE]``."""
        done = data.rfind(b"[DONE]")
        return data if done < 0 else data[: max(data.rfind(b"data:", 0, done), 0)]

    def usage(self, usage: Mapping[str, JsonValue]) -> Usage:
        """Read the counts of prompt, cached prompt and completion."""
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        return Usage(_count(usage.get("prompt_tokens")), cached, _count(usage.get("completion_tokens")))

    def answer(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer as a completion."""
        return completion(request, answer)

    def answer_events(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer as a whole stream of chunks."""
        return event_stream(request, answer)

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        """Write an upstream's whole reply as the events of a stream that has begun."""
        reply = decode_or_none(body, msgspec.json.decode)
        if isinstance(reply, dict) and isinstance(reply.get("choices"), list) and status < HTTPStatus.BAD_REQUEST:
            return b"\n\n" + chunks_of(reply)
        return super().late_reply_event(status, body)


@lru_cache(maxsize=RENDERED)
def system_json(text: str) -> bytes:
    """Write a system message of our own. Its bytes depend on the text only (promise 5, frozen)."""
    return json.dumps({"role": "system", "content": text}, ensure_ascii=False).encode()


def _count(value: JsonValue) -> int | None:
    """Read a number of tokens; an upstream may send anything in its place."""
    return value if type(value) is int and abs(value) <= MAX_COUNT else None
