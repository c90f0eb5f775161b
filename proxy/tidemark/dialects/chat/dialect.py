"""The dialect of chat completions: everything that only OpenAI's format has, behind one object.

The pipeline, the relay and the upstream reach this package through ``Dialect``
(``tidemark/core/conversation/request.py``) only. Source: OpenAI API reference, "Create chat completion".

The search function has its definition and its requests here; ``searched_replies.py`` reads the replies.
Source: ``tools`` and ``tool_choice`` in the same reference.
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
from tidemark.core.recall.search_function import FUNCTION_DESCRIPTION, FUNCTION_NAME
from tidemark.core.report import Usage
from tidemark.dialects.bodies import body_of, encode_json
from tidemark.dialects.chat import completion, message, writing
from tidemark.dialects.chat.jsonl import read_lines
from tidemark.dialects.chat.reply import StreamFold, fold_body
from tidemark.dialects.chat.request import ChatElements, read_messages
from tidemark.dialects.chat.searched_replies import SearchedBody, SearchedStream
from tidemark.dialects.chat.stream_counts import ChatStreamCounts
from tidemark.dialects.chat.writing import as_sent
from tidemark.dialects.dialect import BaseDialect, usage_of
from tidemark.dialects.openai_errors import OpenAIErrors
from tidemark.dialects.raw_json import decode_or_none, read_members
from tidemark.dialects.request_parser import CACHE_BYTES, RequestParser
from tidemark.dialects.searching import PARAMETERS, SearchFunction, arguments_of, member_of, with_function
from tidemark.dialects.signed_thinking import SignedThinking, digest_of_text, object_in, sealed_text

CACHED_MEMBERS = (
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
)
"""Members that are cached before the messages, or that select the server with the cache. Members of sampling and
reasoning are the summarizer's own."""
_FREE_CHOICES = (b"null", b'"auto"', b'"none"')
_JSON = b'"json'
"""``json_object`` and ``json_schema``."""
MEMBER = "thinking_blocks"
RENDERED = 128
"""System messages of our own whose bytes are cached; a summary goes out turn after turn."""
DEFINITION = encode_json(
    {
        "type": "function",
        "function": {
            "name": FUNCTION_NAME,
            "description": FUNCTION_DESCRIPTION,
            "parameters": PARAMETERS,
        },
    }
)
_LEFT_ALONE = ("functions", "function_call", "audio")
"""Members that do not go together with ``tools``, or with more than one round."""


class ChatSearchFunction(SearchFunction):
    """``SearchFunctionFormat`` of chat completions; it has no state."""

    definition = DEFINITION.decode()
    whole = staticmethod(SearchedBody)
    stream = staticmethod(SearchedStream)

    def offering(self, request: ModelRequest) -> ModelRequest | None:
        """Return the request with the function at the end of its tools.

        None if the client chooses a function itself or none, wants several choices, or has a function of this name.
        """
        fields = request.fields
        if any(member_of(fields, name) is not None for name in _LEFT_ALONE):
            return None
        if member_of(fields, "n") not in (None, 1) or member_of(fields, "tool_choice") not in (None, "auto"):
            return None
        return with_function(request, DEFINITION)

    def call_message(self, message: Message) -> bytes:
        """Return the message as a request may have it; each call gets an id and an object of arguments."""
        members: dict[str, JsonValue] = json.loads(as_sent(message.raw))
        calls = members.get("tool_calls")
        members["tool_calls"] = [
            _sendable(call, place) for place, call in enumerate(calls if isinstance(calls, list) else ())
        ]
        return encode_json(members)

    def result(self, call: str, text: str) -> bytes:
        """Return a message with the role ``tool``."""
        return encode_json({"role": "tool", "tool_call_id": call, "content": text})


def _sendable(call: JsonValue, place: int) -> JsonValue:
    """Return a call with an id, and with no arguments if the model's are no JSON object."""
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        return call
    function = {**function, "arguments": arguments_of(function.get("arguments"))}
    return {**call, "id": call.get("id") or f"search_{place}", "function": function}


def cached_members(request: ModelRequest) -> Mapping[str, bytes] | None:
    """Return the members that a provider caches; None if the request demands JSON or the call of a tool.

    A summarizer with ``cache_friendly`` repeats them, so that its call reads from the provider's prompt cache. Source:
    OpenAI API guide, "Prompt caching".
    """
    fields = request.fields
    forced = any(fields.get(name, b"null").strip() not in _FREE_CHOICES for name in ("tool_choice", "function_call"))
    if forced or _JSON in fields.get("response_format", b""):
        return None
    return {name: fields[name] for name in CACHED_MEMBERS if name in fields}


class ChatThinking(SignedThinking):
    """``ThinkingFormat`` of chat completions: ``thinking_blocks``, a member that litellm gives and takes.

    Source: litellm's guide "Thinking".
    """

    def __init__(self) -> None:
        super().__init__("messages", ("tools",))

    def is_in(self, data: bytes) -> bool:
        return b'"thinking_blocks"' in data

    def key_of(self, element: bytes) -> bytes:
        """Return the digest of an answer's first signature or sealed thinking; empty if it has none."""
        sealed = sealed_text(object_in(element).get(MEMBER)) if self.is_in(element) else ""
        return digest_of_text(sealed) if sealed else b""

    def without(self, element: bytes) -> bytes:
        """Return an answer without its thinking; all other members keep their bytes."""
        members = read_members(element, bounded=False)
        return body_of({name: raw for name, raw in members.items() if name != MEMBER}, {})


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
    as_sent = staticmethod(writing.as_sent)
    replace_middle = staticmethod(writing.replace_middle)
    cached_members = staticmethod(cached_members)
    answer = staticmethod(completion.completion)
    answer_events = staticmethod(completion.event_stream)

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.parser = RequestParser(self, ChatElements(), cache_bytes)

    def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> Awaitable[ModelRequest]:
        return self.parser.parse(body, anonymous=anonymous, bounded=bounded)

    def parse_lines(self, data: bytes) -> list[Message]:
        return [line.message for line in read_lines(data)]

    def fold_body(self, data: bytes) -> Reply:
        return fold_body(data, msgspec.json.decode)

    def fold_stream(self) -> StreamFold:
        return StreamFold(msgspec.json.decode)

    def before_end(self, data: bytes) -> bytes:
        done = data.rfind(b"[DONE]")
        return data if done < 0 else data[: max(data.rfind(b"data:", 0, done), 0)]

    def usage(self, usage: Mapping[str, JsonValue]) -> Usage:
        """Read the counts of prompt, cached prompt and completion."""
        return usage_of(usage, "prompt_tokens", "completion_tokens")

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        reply = decode_or_none(body)
        if isinstance(reply, dict) and isinstance(reply.get("choices"), list) and status < HTTPStatus.BAD_REQUEST:
            return b"\n\n" + completion.chunks_of(reply)
        return super().late_reply_event(status, body)
