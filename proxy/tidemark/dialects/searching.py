"""Offers the search function in the requests of any dialect, and adds up the tokens of its rounds (docs/adr/0027).

``dialect.py`` of each dialect writes the definition and says which choices of a client allow it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.recall.search_function import FUNCTION_NAME, PROPERTIES
from tidemark.dialects.bodies import body_of
from tidemark.dialects.raw_json import decode_value

PARAMETERS: Mapping[str, JsonValue] = {
    "type": "object",
    "properties": {name: {"type": "string", "description": text} for name, text in PROPERTIES.items()},
    "additionalProperties": False,
}
"""The JSON schema of a call's arguments."""


class SearchFunction:
    """``SearchFunctionFormat``, as far as it is the same in each dialect; it has no state."""

    no_calls = b'"none"'
    """The value of ``tool_choice`` that forbids calls."""

    def without_calls(self, request: ModelRequest, offering: ModelRequest) -> ModelRequest:
        """Return the client's own request or, if it has no tools, the offering one with calls forbidden.

        Anthropic and others refuse a conversation with calls in a request that has no tools.
        """
        if member_of(request.fields, "tools"):
            return request
        return with_member(offering, "tool_choice", self.no_calls)

    def is_refused(self, body: bytes) -> bool:
        """Return whether a refusal names tools or functions, and is not about the length, which may name them too."""
        text = body.lower()
        return (b"tool" in text or b"function" in text) and b"context" not in text


def with_function(request: ModelRequest, definition: bytes) -> ModelRequest | None:
    """Return the request with the function at the end of its tools.

    None if the client has a tool of this name, or tools that are no list.
    """
    fields = request.fields
    tools = member_of(fields, "tools")
    if tools is not None and (not isinstance(tools, list) or any(map(_has_name, tools))):
        return None
    own = fields["tools"].rstrip()[:-1] + b"," if tools else b"["
    return with_member(request, "tools", own + definition + b"]")


def with_member(request: ModelRequest, name: str, value: bytes) -> ModelRequest:
    """Return the request with another value of one member."""
    fields = {**request.fields, name: value}
    return replace(request, fields=fields, body=body_of(fields, {}))


def member_of(fields: Mapping[str, bytes], name: str) -> JsonValue:
    """Return the value of a member; None if there is none."""
    return decode_value(fields[name], name) if name in fields else None


def arguments_of(value: JsonValue) -> str:
    """Return the arguments of a call; an empty object if the model's are no JSON object."""
    try:
        is_object = isinstance(value, str) and isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        is_object = False
    return str(value) if is_object else "{}"


def sum_of(first: Mapping[str, JsonValue], second: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Add up the numbers of two counts, member by member; what is no number is the second's."""
    members: dict[str, JsonValue] = dict(first)
    for name, value in second.items():
        before = members.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            members[name] = sum_of(before, value)
        elif isinstance(before, int | float) and isinstance(value, int | float):
            members[name] = before + value
        elif value is not None or name not in members:
            members[name] = value
    return members


def _has_name(tool: JsonValue) -> bool:
    """Return whether a tool of the client's has the name of the search function, whatever its type."""
    if not isinstance(tool, dict):
        return False
    bodies = (tool, tool.get("function"), tool.get("custom"))
    return any(isinstance(body, dict) and body.get("name") == FUNCTION_NAME for body in bodies)
