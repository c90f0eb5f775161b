"""Says a request of Anthropic's messages in chat completions.

Tools that the provider runs itself are left out, because the model cannot use them there. Source: Anthropic API
reference, "Messages"; OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest
from tidemark.upstream.bridges.values import Members, object_of, objects_of, value_of, without_none

SAME = ("temperature", "top_p", "top_k")
CHOICES: Mapping[str, JsonValue] = {"auto": "auto", "any": "required", "none": "none"}
EFFORTS = ((4_096, "low"), (16_384, "medium"))
"""The effort of a budget for thinking up to so many tokens; ``high`` above."""
LONGEST_USER = 64
"""Characters; OpenAI refuses a longer ``user``."""
BY_PROVIDER = ("mcp_servers", "container")
"""Members that ask for what runs at the provider: connections to MCP servers, and containers with skills."""
OWN_TOOLS = (None, "custom")
"""Types of tools that the client runs."""


class MessagesRequestBridge:
    """``RequestBridge`` of messages; it has no state."""

    def members_of(self, request: ModelRequest) -> Members:
        """Return the members of the chat request."""
        fields = request.fields
        tools = [_tool(tool) for tool in objects_of(value_of(fields, "tools")) if tool.get("type") in OWN_TOOLS]
        choice = object_of(value_of(fields, "tool_choice"))
        members: Members = {name: value_of(fields, name) for name in SAME}
        members |= {
            "max_tokens": request.max_output_tokens,
            "stop": value_of(fields, "stop_sequences"),
            "user": _user(fields),
            "reasoning_effort": _effort(fields),
            "response_format": _format(fields),
            "tools": tools or None,
            "tool_choice": _choice(choice, has_tools=bool(tools)),
            "parallel_tool_calls": False if tools and choice.get("disable_parallel_tool_use") is True else None,
        }
        return without_none(members)

    def left_out(self, request: ModelRequest) -> Sequence[str]:
        """Return the members that only Anthropic serves, and that the model then answers without."""
        return [name for name in BY_PROVIDER if name in request.fields and value_of(request.fields, name)]

    def system_of(self, request: ModelRequest) -> str:
        """Return the text of ``system``."""
        system = value_of(request.fields, "system")
        if isinstance(system, str):
            return system
        return "\n".join([str(block.get("text") or "") for block in objects_of(system)])

    def adapted(self, request: ModelRequest, message: Message) -> Message:
        """Return the message itself."""
        del request
        return message


def _tool(tool: Mapping[str, JsonValue]) -> JsonValue:
    function: Members = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
        "strict": tool.get("strict"),
    }
    return {"type": "function", "function": without_none(function)}


def _choice(choice: Mapping[str, JsonValue], *, has_tools: bool) -> JsonValue:
    """Return ``tool_choice``; None where the model may choose."""
    kind = choice.get("type")
    if kind in ("any", "tool") and not has_tools:
        raise InvalidRequest(
            "'tool_choice' demands a tool that cannot be served: this upstream speaks chat completions only, and the "
            "request has none but the provider's own tools. Leave it out, or use an upstream that speaks messages.",
            param="tool_choice",
            code="unsupported_value",
        )
    if kind is None or not has_tools:
        return None
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if not isinstance(kind, str) or kind not in CHOICES:
        raise InvalidRequest(f"Unknown tool_choice type {kind!r}.", param="tool_choice.type", code="invalid_value")
    return CHOICES[kind]


def _user(fields: Mapping[str, bytes]) -> JsonValue:
    """Return the user's id; a longer one, such as Claude Code's JSON, is no ``user`` of chat completions."""
    user = object_of(value_of(fields, "metadata")).get("user_id")
    return user if isinstance(user, str) and len(user) <= LONGEST_USER else None


def _effort(fields: Mapping[str, bytes]) -> JsonValue:
    """Return the effort of reasoning that is closest to what the client asks for; None where it asks for none."""
    effort = object_of(value_of(fields, "output_config")).get("effort")
    if isinstance(effort, str):
        return effort if effort in ("low", "medium", "high") else "high"
    thinking = object_of(value_of(fields, "thinking"))
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return None
    return next((name for most, name in EFFORTS if budget <= most), "high")


def _format(fields: Mapping[str, bytes]) -> JsonValue:
    """Return ``response_format``; None for plain text."""
    wanted = object_of(object_of(value_of(fields, "output_config")).get("format") or value_of(fields, "output_format"))
    if wanted.get("type") != "json_schema":
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted.get("schema")}}
