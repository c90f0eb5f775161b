"""The dialect of chat completions: everything that only OpenAI's format has, behind one object.

The pipeline, the relay and the upstream reach this package through ``Dialect``
(``tidemark/core/conversation/request.py``) only. Source: OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from functools import lru_cache
from http import HTTPStatus

import msgspec

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.report import Usage
from tidemark.dialects.chat import clipping, completion, echo, message, prompt_cache, writing
from tidemark.dialects.chat.bound_thinking import ChatThinking
from tidemark.dialects.chat.jsonl import read_lines
from tidemark.dialects.chat.reply import fold_body
from tidemark.dialects.chat.request import ChatElements, read_messages
from tidemark.dialects.chat.search_function import ChatSearchFunction
from tidemark.dialects.chat.stream import StreamFold
from tidemark.dialects.chat.stream_counts import ChatStreamCounts
from tidemark.dialects.dialect import BaseDialect, usage_of
from tidemark.dialects.openai_errors import OpenAIErrors
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.request_parser import CACHE_BYTES, RequestParser

RENDERED = 128
"""System messages of our own whose bytes are cached; a summary goes out turn after turn."""


@lru_cache(maxsize=RENDERED)
def system_json(text: str) -> bytes:
    """Write a system message of our own. Its bytes depend on the text only (promise 5, frozen)."""
    return json.dumps({"role": "system", "content": text}, ensure_ascii=False).encode()


class ChatDialect(OpenAIErrors, BaseDialect):
    """``Dialect``. Its state is the parser's cache of messages.

    :param cache_bytes: memory for parsed messages
    """

    name = "chat"
    path = "/chat/completions"
    messages_member = "messages"
    system_member = ""
    tool_members = ("tools", "functions")
    stream_counts = ChatStreamCounts()
    search_function = ChatSearchFunction()
    bound_thinking = ChatThinking()

    parse_messages = staticmethod(read_messages)
    own_message = staticmethod(system_json)
    write = staticmethod(writing.write_message)
    is_message = staticmethod(message.is_message)
    as_sent = staticmethod(echo.as_sent)
    replace_middle = staticmethod(clipping.replace_middle)
    cached_members = staticmethod(prompt_cache.cached_members)
    answer = staticmethod(completion.completion)
    answer_events = staticmethod(completion.event_stream)

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.parser = RequestParser(self, ChatElements(), cache_bytes)

    def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> Awaitable[ModelRequest]:
        """Parse a body; in a thread where much of it is new."""
        return self.parser.parse(body, anonymous=anonymous, bounded=bounded)

    def parse_lines(self, data: bytes) -> list[Message]:
        """Parse an export: one message a line."""
        return [line.message for line in read_lines(data)]

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
        return usage_of(usage, "prompt_tokens", "completion_tokens")

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        """Write an upstream's whole reply as the events of a stream that has begun."""
        reply = decode_or_none(body)
        if isinstance(reply, dict) and isinstance(reply.get("choices"), list) and status < HTTPStatus.BAD_REQUEST:
            return b"\n\n" + completion.chunks_of(reply)
        return super().late_reply_event(status, body)
