"""Converts LangChain's messages to the core's, for ``langgraph.py``.

The store finds a conversation by its messages as the chat-completions dialect parses them. So each message is written
as LangChain's OpenAI client sends it, and parsed by the parser of the proxy's requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.dialects.chat.message import ROLES, parse_message

_ROLES: Mapping[type[BaseMessage], str] = {
    SystemMessage: "system",
    HumanMessage: "user",
    AIMessage: "assistant",
    ToolMessage: "tool",
    FunctionMessage: "function",
}


def core_message(message: BaseMessage) -> Message:
    """Convert one message; a content that the dialect cannot express stays as it is."""
    wire = {"role": _role(message), "content": _content(message), **_pairing(message)}
    if message.name and wire["role"] != "tool":  # LangChain's client sends a tool's result without the tool's name
        wire["name"] = message.name
    raw = json.dumps(wire, ensure_ascii=False, default=str)
    return parse_message(raw.encode(errors="surrogatepass"), json.loads(raw), 0)


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role if message.role in ROLES else "user"
    return next((role for kind, role in _ROLES.items() if isinstance(message, kind)), "user")


def _content(message: BaseMessage) -> JsonValue:
    """Return text as it is, and parts in OpenAI's form if LangChain can convert them."""
    content = message.content
    if isinstance(content, str):
        return content
    try:
        (wire,) = convert_to_openai_messages([HumanMessage(content)])
    except (ValueError, TypeError, KeyError, AttributeError):
        return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    converted: JsonValue = wire["content"]
    return converted


def _pairing(message: BaseMessage) -> dict[str, JsonValue]:
    """Return the members that pair calls with results; an unreadable call counts as a call too."""
    if isinstance(message, ToolMessage):
        return {"tool_call_id": message.tool_call_id}
    if not isinstance(message, AIMessage):
        return {}
    calls = [_call(call["id"], call["name"], json.dumps(call["args"], default=str)) for call in message.tool_calls]
    calls += [_call(call["id"], call["name"], call["args"]) for call in message.invalid_tool_calls]
    return {"tool_calls": calls} if calls else {}


def _call(call_id: str | None, name: str | None, arguments: str | None) -> JsonValue:
    return {
        "id": call_id or "",
        "type": "function",
        "function": {"name": name or "", "arguments": arguments or ""},
    }
