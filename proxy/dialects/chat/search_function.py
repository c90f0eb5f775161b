"""The search function in chat completions: its definition, and the requests that offer it.

``searched_body.py`` and ``searched_stream.py`` read the replies. Source: OpenAI API reference, "Create chat
completion", ``tools`` and ``tool_choice``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from proxy.core.conversation.messages import JsonValue, Message
from proxy.core.conversation.request import ModelRequest
from proxy.core.recall.search_function import FUNCTION_DESCRIPTION, FUNCTION_NAME, QUERY, QUERY_DESCRIPTION
from proxy.dialects.bodies import body_of, encode_json
from proxy.dialects.chat.echo import as_sent
from proxy.dialects.chat.searched_body import SearchedBody
from proxy.dialects.chat.searched_stream import SearchedStream
from proxy.dialects.raw_json import decode_value

DEFINITION = encode_json(
    {
        "type": "function",
        "function": {
            "name": FUNCTION_NAME,
            "description": FUNCTION_DESCRIPTION,
            "parameters": {
                "type": "object",
                "properties": {QUERY: {"type": "string", "description": QUERY_DESCRIPTION}},
                "required": [QUERY],
                "additionalProperties": False,
            },
        },
    }
)
_LEFT_ALONE = ("functions", "function_call", "audio")
"""Members that do not go together with ``tools``, or with more than one round."""
_REASONING = ("reasoning_content", "reasoning_details")
"""What some providers demand back in the round after a call, as DeepSeek does; others never send it."""


class ChatSearchFunction:
    """``SearchFunctionFormat`` of chat completions; it has no state."""

    definition = DEFINITION.decode()

    def offering(self, request: ModelRequest) -> ModelRequest | None:
        """Return the request with the function at the end of its tools.

        None where the client chooses a function itself or none, wants several choices, or has a function of this name.
        """
        fields = request.fields
        if any(_value(fields, name) is not None for name in _LEFT_ALONE):
            return None
        if _value(fields, "n") not in (None, 1) or _value(fields, "tool_choice") not in (None, "auto"):
            return None
        tools = _value(fields, "tools")
        if tools is not None and (not isinstance(tools, list) or any(_has_name(tool) for tool in tools)):
            return None
        own = fields["tools"].rstrip()[:-1] + b"," if tools else b"["
        offered = {**fields, "tools": own + DEFINITION + b"]"}
        return replace(request, fields=offered, body=body_of(offered, {}))

    def without_calls(self, request: ModelRequest, offering: ModelRequest) -> ModelRequest:
        """Return the client's own request or, where it has no tools, the offering one with calls forbidden.

        Some providers refuse a conversation with calls in a request that has no tools.
        """
        if _value(request.fields, "tools"):
            return request
        fields = {**offering.fields, "tool_choice": b'"none"'}
        return replace(offering, fields=fields, body=body_of(fields, {}))

    def call_message(self, message: Message) -> bytes:
        """Return the message as a request may have it; each call gets an id and an object of arguments."""
        answer: dict[str, JsonValue] = json.loads(message.raw)
        members: dict[str, JsonValue] = json.loads(as_sent(message.raw))
        members |= {name: answer[name] for name in _REASONING if answer.get(name)}
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
        text = body.lower()
        return (b"tool" in text or b"function" in text) and b"context" not in text

    def whole(self) -> SearchedBody:
        """Begin to read a completion."""
        return SearchedBody()

    def stream(self) -> SearchedStream:
        """Begin to read a stream of chunks."""
        return SearchedStream()


def _value(fields: Mapping[str, bytes], name: str) -> JsonValue:
    return decode_value(fields[name], name) if name in fields else None


def _has_name(tool: JsonValue) -> bool:
    """Return whether a tool of the client's has the name of the search function, whatever its type."""
    if not isinstance(tool, dict):
        return False
    bodies = (tool, tool.get("function"), tool.get("custom"))
    return any(isinstance(body, dict) and body.get("name") == FUNCTION_NAME for body in bodies)


def _sendable(call: JsonValue, place: int) -> JsonValue:
    """Return a call with an id, and with no arguments where the model's are no JSON object."""
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        return call
    try:
        is_object = isinstance(json.loads(function.get("arguments") or ""), dict)
    except (TypeError, ValueError, RecursionError):
        is_object = False
    if not is_object:
        function = {**function, "arguments": "{}"}
    return {**call, "id": call.get("id") or f"search_{place}", "function": function}
