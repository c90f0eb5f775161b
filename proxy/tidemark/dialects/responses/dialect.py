"""The dialect of OpenAI's Responses API: everything that only this format has, behind one object.

The pipeline, the relay and the upstream reach this package through ``Dialect``
(``tidemark/core/conversation/request.py``) only. Source: OpenAI API reference, "Create a model response".

The search function has its definition and its requests here; ``searched_replies.py`` reads the replies.
Source: ``tools`` and ``tool_choice`` in the same reference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.thinking import SEALED
from tidemark.core.recall.search_function import FUNCTION_DESCRIPTION, FUNCTION_NAME
from tidemark.core.report import Usage
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.dialect import BaseDialect, usage_of
from tidemark.dialects.event_stream import before_final
from tidemark.dialects.raw_json import read_elements
from tidemark.dialects.request_parser import CACHE_BYTES, RequestParser
from tidemark.dialects.responses import reply, writing
from tidemark.dialects.responses.answer import ResponsesErrors, event_stream, response_body
from tidemark.dialects.responses.compaction import TRIGGER, compaction_triggers
from tidemark.dialects.responses.items import ROLES
from tidemark.dialects.responses.reply import FINAL, stream_fold
from tidemark.dialects.responses.request import (
    COMPACTED_BY_PROVIDER,
    STANDS_IN,
    InputItems,
    earlier_response,
    left_to_upstream,
    read_stored,
)
from tidemark.dialects.responses.searched_replies import SearchedResponseBody, SearchedResponseStream
from tidemark.dialects.responses.state import ResponsesApiFormat, opening_error
from tidemark.dialects.responses.writing import as_sent
from tidemark.dialects.searching import PARAMETERS, SearchFunction, arguments_of, member_of, with_function
from tidemark.dialects.signed_thinking import SignedThinking, digest_of_text, object_in

DEFINITION = encode_json(
    {
        "type": "function",
        "name": FUNCTION_NAME,
        "description": FUNCTION_DESCRIPTION,
        "parameters": PARAMETERS,
        "strict": False,
    }
)


class ResponsesSearchFunction(SearchFunction):
    """``SearchFunctionFormat`` of the Responses API; it has no state."""

    definition = DEFINITION.decode()
    whole = staticmethod(SearchedResponseBody)
    stream = staticmethod(SearchedResponseStream)

    def offering(self, request: ModelRequest) -> ModelRequest | None:
        """Return the request with the function at the end of its tools.

        None if the client chooses a tool itself or none, has one of this name, or bounds the number of calls, and
        for a response in the background.
        """
        fields = request.fields
        if member_of(fields, "background") or member_of(fields, "max_tool_calls") is not None:
            return None
        if member_of(fields, "tool_choice") not in (None, "auto"):
            return None
        return with_function(request, DEFINITION)

    def call_message(self, message: Message) -> bytes:
        """Return the items as a request may have them; each call gets an id and an object of arguments."""
        items: list[JsonValue] = json.loads(b"[" + as_sent(message.raw) + b"]")
        return b",".join([encode_json(_sendable(item, place)) for place, item in enumerate(items)])

    def result(self, call: str, text: str) -> bytes:
        """Return an item of the type ``function_call_output``."""
        return encode_json({"type": "function_call_output", "call_id": call, "output": text})


def _sendable(item: JsonValue, place: int) -> JsonValue:
    """Return a call with an id, and with no arguments if the model's are no JSON object. Other items stay."""
    if not isinstance(item, dict) or item.get("type") != "function_call":
        return item
    arguments = arguments_of(item.get("arguments"))
    return {**item, "call_id": item.get("call_id") or f"call_search_{place}", "arguments": arguments}


class ResponsesThinking(SignedThinking):
    """``ThinkingFormat`` of the Responses API: reasoning items in which a bridge has sealed signed thinking.

    ``upstream/bridges/thinking.py`` seals it. What OpenAI encrypts is not looked at.
    """

    def __init__(self) -> None:
        super().__init__("input", ("instructions", "tools"))

    def is_in(self, data: bytes) -> bool:
        return SEALED.encode() in data

    def key_of(self, element: bytes) -> bytes:
        """Return the digest of the first sealed thinking of an item, or of a turn's items; empty without any."""
        for item in read_elements(b"[" + element + b"]") if self.is_in(element) else ():
            sealed = object_in(item).get("encrypted_content")
            if isinstance(sealed, str) and sealed.startswith(SEALED):
                return digest_of_text(sealed)
        return b""

    def without(self, element: bytes) -> bytes:
        """Return nothing: the whole item is thinking."""
        del element
        return b""


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


class ResponsesDialect(ResponsesErrors, BaseDialect):
    """``Dialect``. Its state is the parser's cache of items.

    :param cache_bytes: memory for parsed items
    """

    name = "responses"
    path = "/responses"
    messages_member = "input"
    text_type = "input_text"
    system_member = "instructions"
    tool_members = ("tools",)
    responses = ResponsesApiFormat()
    search_function = ResponsesSearchFunction()
    bound_thinking = ResponsesThinking()

    parse_messages = staticmethod(read_stored)
    own_message = staticmethod(writing.system_item)
    array_without = staticmethod(writing.array_without)
    write = staticmethod(writing.write_message)
    is_message = staticmethod(is_message)
    as_sent = staticmethod(writing.as_sent)
    replace_middle = staticmethod(writing.replace_middle)
    fold_body = staticmethod(reply.fold_body)
    fold_stream = staticmethod(stream_fold)
    answer = staticmethod(response_body)
    answer_events = staticmethod(event_stream)
    opening_error = staticmethod(opening_error)

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.parser = RequestParser(self, InputItems(), cache_bytes, STANDS_IN)

    async def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        request = await self.parser.parse(body, anonymous=anonymous, bounded=bounded)
        earlier, reason = earlier_response(request.fields), left_to_upstream(request.fields)
        triggers = compaction_triggers(request.fields)
        if not (earlier or reason or triggers):
            return request
        if 0 in triggers:
            reason = COMPACTED_BY_PROVIDER.format(member=TRIGGER)
        return replace(request, continues=earlier, left_to_upstream=reason, compaction_triggers=triggers)

    def parse_lines(self, data: bytes) -> list[Message]:
        """Parse an export: the items of one message a line."""
        return list(read_stored([line for line in data.splitlines() if line.strip()]))

    def before_end(self, data: bytes) -> bytes:
        return before_final(data, FINAL)

    def usage(self, usage: Mapping[str, JsonValue]) -> Usage:
        """Read the counts of input, cached input and output."""
        return usage_of(usage, "input_tokens", "output_tokens")
