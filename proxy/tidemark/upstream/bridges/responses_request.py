"""Says a Responses request in chat completions.

Built-in tools of the provider, such as ``web_search``, are left out, because the model cannot use them there; a request
that demands one, or what only the provider could do, is refused. Source: OpenAI API reference, "Create a model
response" and "Create chat completion".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import EarlierResponseUnknown, InvalidRequest
from tidemark.upstream.bridges.values import Members, object_of, objects_of, value_of, without_none

SAME = (
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "seed",
    "service_tier",
    "store",
    "temperature",
    "top_p",
    "user",
)
"""Members of one name and one meaning in both formats."""
BY_PROVIDER = ("background", "conversation", "prompt")
"""Members that ask for something that only the provider has."""
REMEDY = (
    "This upstream speaks chat completions only, which has nothing like it. Leave it out, use an upstream that speaks "
    "Responses, or set model_info.dialects for this model if its upstream does."
)
INPUT = "input"
"""The argument of the function that stands for a custom tool."""


class ResponsesRequestBridge:
    """``RequestBridge`` of Responses; it has no state."""

    def members_of(self, request: ModelRequest) -> Members:
        """Return the members of the chat request."""
        fields = request.fields
        for name in BY_PROVIDER:
            if value_of(fields, name):
                raise InvalidRequest(f"{name!r} cannot be served. {REMEDY}", param=name, code="unsupported_parameter")
        if request.continues:  # Tidemark has put the messages of every response that it knows into the request
            raise EarlierResponseUnknown(request.continues)
        text, reasoning = object_of(value_of(fields, "text")), object_of(value_of(fields, "reasoning"))
        members: Members = {name: value_of(fields, name) for name in SAME}
        members |= {
            "max_tokens": request.max_output_tokens,
            "reasoning_effort": reasoning.get("effort"),
            "verbosity": text.get("verbosity"),
            "response_format": _format(object_of(text.get("format"))),
            "tools": _allowed(_tools(value_of(fields, "tools")), value_of(fields, "tool_choice")) or None,
        }
        if members["tools"] is None:
            members["parallel_tool_calls"] = None
        return without_none(members | {"tool_choice": _choice(fields, has_tools=members["tools"] is not None)})

    def left_out(self, request: ModelRequest) -> Sequence[str]:
        """Return nothing: what only the provider could do is refused."""
        del request
        return ()

    def system_of(self, request: ModelRequest) -> str:
        """Return the instructions."""
        instructions = value_of(request.fields, "instructions")
        return instructions if isinstance(instructions, str) else ""

    def adapted(self, request: ModelRequest, message: Message) -> Message:
        """Return a message whose calls of custom tools are calls of functions."""
        custom = custom_tools(request) if message.calls else frozenset()
        if not any(call.name in custom for call in message.calls):
            return message
        calls = [
            replace(call, arguments=json.dumps({INPUT: call.arguments})) if call.name in custom else call
            for call in message.calls
        ]
        return Message(
            b"", message.role, message.text, message.digest, name=message.name, calls=tuple(calls), media=message.media
        )


def custom_tools(request: ModelRequest) -> frozenset[str]:
    """Return the names of the request's custom tools, whose input is free text."""
    tools = objects_of(value_of(request.fields, "tools"))
    return frozenset(str(tool.get("name")) for tool in tools if tool.get("type") == "custom")


def namespaces(request: ModelRequest) -> Mapping[str, str]:
    """Return the namespace of each function that has one, by the function's name."""
    spaces = [tool for tool in objects_of(value_of(request.fields, "tools")) if tool.get("type") == "namespace"]
    pairs = [(tool.get("name"), space.get("name")) for space in spaces for tool in objects_of(space.get("tools"))]
    return {str(name): str(space) for name, space in pairs}


def _tools(value: JsonValue) -> list[JsonValue]:
    """Return the tools that the model can call in chat completions."""
    tools: list[JsonValue] = []
    for tool in objects_of(value):
        match tool.get("type"):
            case "function":
                tools.append(_function(tool, tool.get("parameters")))
            case "custom":
                schema = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
                tools.append(_function(tool, schema))
            case "namespace":
                tools += _tools(tool.get("tools"))
            case _:
                continue
    return tools


def _allowed(tools: list[JsonValue], choice: JsonValue) -> list[JsonValue]:
    """Return the tools that ``tool_choice`` allows: all, unless it lists some."""
    members = object_of(choice)
    if members.get("type") != "allowed_tools":
        return tools
    names = [tool.get("name") for tool in objects_of(members.get("tools"))]
    return [tool for tool in tools if object_of(object_of(tool).get("function")).get("name") in names]


def _function(tool: Mapping[str, JsonValue], schema: JsonValue) -> JsonValue:
    function: Members = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": schema,
        "strict": tool.get("strict"),
    }
    return {"type": "function", "function": without_none(function)}


def _choice(fields: Mapping[str, bytes], *, has_tools: bool) -> JsonValue:
    """Return ``tool_choice``; None where the model may choose."""
    choice = value_of(fields, "tool_choice")
    members = object_of(choice)
    kind = members.get("type")
    demands = choice == "required" or kind in ("function", "custom") or members.get("mode") == "required"
    if demands and not has_tools:
        message = f"'tool_choice' demands a tool that cannot be served. {REMEDY}"
        raise InvalidRequest(message, param="tool_choice", code="unsupported_value")
    if isinstance(choice, str):
        return choice if has_tools else None
    if kind in ("function", "custom"):
        return {"type": "function", "function": {"name": members.get("name")}}
    if kind == "allowed_tools":
        return members.get("mode") if has_tools else None
    if kind is not None:
        message = f"The tool {kind!r} cannot be served. {REMEDY}"
        raise InvalidRequest(message, param="tool_choice", code="unsupported_value")
    return None


def _format(value: Mapping[str, JsonValue]) -> JsonValue:
    """Return ``response_format``; None for plain text."""
    if value.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {name: item for name, item in value.items() if name != "type"}}
    return {"type": "json_object"} if value.get("type") == "json_object" else None
