"""The search function in chat completions: its definition, and the requests that offer it.

``searched_replies.py`` reads the replies. Source: OpenAI API reference, "Create chat
completion", ``tools`` and ``tool_choice``.
"""

from __future__ import annotations

import json

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.recall.search_function import FUNCTION_DESCRIPTION, FUNCTION_NAME
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.chat.searched_replies import SearchedBody, SearchedStream
from tidemark.dialects.chat.writing import as_sent
from tidemark.dialects.searching import PARAMETERS, is_about_functions, member_of, with_function, with_member

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
_REASONING = ("reasoning_content", "reasoning_details")
"""What some providers demand back with a call, as DeepSeek does, even if it is empty. Others never send it."""


class ChatSearchFunction:
    """``SearchFunctionFormat`` of chat completions; it has no state."""

    definition = DEFINITION.decode()

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

    def without_calls(self, request: ModelRequest, offering: ModelRequest) -> ModelRequest:
        """Return the client's own request or, if it has no tools, the offering one with calls forbidden.

        Some providers refuse a conversation with calls in a request that has no tools.
        """
        if member_of(request.fields, "tools"):
            return request
        return with_member(offering, "tool_choice", b'"none"')

    def call_message(self, message: Message) -> bytes:
        """Return the message as a request may have it; each call gets an id and an object of arguments."""
        answer: dict[str, JsonValue] = json.loads(message.raw)
        members: dict[str, JsonValue] = json.loads(as_sent(message.raw))
        members |= {name: answer[name] for name in _REASONING if answer.get(name) is not None}
        calls = members.get("tool_calls")
        members["tool_calls"] = [
            _sendable(call, place) for place, call in enumerate(calls if isinstance(calls, list) else ())
        ]
        return encode_json(members)

    def result(self, call: str, text: str) -> bytes:
        """Return a message with the role ``tool``."""
        return encode_json({"role": "tool", "tool_call_id": call, "content": text})

    def is_refused(self, body: bytes) -> bool:
        """Return whether a refusal names tools or functions, and is not about the length, which may name them too."""
        return is_about_functions(body)

    def whole(self) -> SearchedBody:
        return SearchedBody()

    def stream(self) -> SearchedStream:
        return SearchedStream()


def _sendable(call: JsonValue, place: int) -> JsonValue:
    """Return a call with an id, and with no arguments if the model's are no JSON object."""
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        return call
    try:
        is_object = isinstance(json.loads(function.get("arguments") or ""), dict)
    except (TypeError, ValueError, RecursionError):
        is_object = False
    if not is_object:
        function = {**function, "arguments": "{}"}
    return {**call, "id": call.get("id") or f"search_{place}", "function": function}
