"""The search function in the Responses API: its definition, and the requests that offer it.

``searched_replies.py`` reads the replies. Source: OpenAI API reference, "Create a model
response", ``tools`` and ``tool_choice``.
"""

from __future__ import annotations

import json

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.recall.search_function import FUNCTION_DESCRIPTION, FUNCTION_NAME
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.responses.searched_replies import SearchedResponseBody, SearchedResponseStream
from tidemark.dialects.responses.writing import as_sent
from tidemark.dialects.searching import PARAMETERS, is_about_functions, member_of, with_function, with_member

DEFINITION = encode_json(
    {
        "type": "function",
        "name": FUNCTION_NAME,
        "description": FUNCTION_DESCRIPTION,
        "parameters": PARAMETERS,
        "strict": False,
    }
)


class ResponsesSearchFunction:
    """``SearchFunctionFormat`` of the Responses API; it has no state."""

    definition = DEFINITION.decode()

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

    def without_calls(self, request: ModelRequest, offering: ModelRequest) -> ModelRequest:
        """Return the client's own request or, if it has no tools, the offering one with calls forbidden."""
        if member_of(request.fields, "tools"):
            return request
        return with_member(offering, "tool_choice", b'"none"')

    def call_message(self, message: Message) -> bytes:
        """Return the items as a request may have them; each call gets an id and an object of arguments."""
        items: list[JsonValue] = json.loads(b"[" + as_sent(message.raw) + b"]")
        return b",".join([encode_json(_sendable(item, place)) for place, item in enumerate(items)])

    def result(self, call: str, text: str) -> bytes:
        """Return an item of the type ``function_call_output``."""
        return encode_json({"type": "function_call_output", "call_id": call, "output": text})

    def is_refused(self, body: bytes) -> bool:
        """Return whether a refusal is about tools."""
        return is_about_functions(body)

    def whole(self) -> SearchedResponseBody:
        return SearchedResponseBody()

    def stream(self) -> SearchedResponseStream:
        return SearchedResponseStream()


def _sendable(item: JsonValue, place: int) -> JsonValue:
    """Return a call with an id, and with no arguments if the model's are no JSON object. Other items stay."""
    if not isinstance(item, dict) or item.get("type") != "function_call":
        return item
    try:
        is_object = isinstance(json.loads(item.get("arguments") or ""), dict)
    except (TypeError, ValueError, RecursionError):
        is_object = False
    arguments = item["arguments"] if is_object else "{}"
    return {**item, "call_id": item.get("call_id") or f"call_search_{place}", "arguments": arguments}
