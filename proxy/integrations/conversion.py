"""LangChain's messages as the core's, for ``langgraph.py`` beside it.

The core plans over messages of the chat-completions dialect, and the store finds a conversation by what they mean. So
each is written as the OpenAI client of LangChain sends it, and read by the same parser as a request of the proxy.
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

from proxy.core.conversation.messages import JsonValue, Message
from proxy.dialects.chat.message import ROLES, parse_message

_ROLES: Mapping[type[BaseMessage], str] = {
    SystemMessage: "system",
    HumanMessage: "user",
    AIMessage: "assistant",
    ToolMessage: "tool",
    FunctionMessage: "function",
}


def core_message(message: BaseMessage) -> Message:
    """One message in the core's words. A content that the dialect has no words for is kept as it is."""
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
    """Text as it is; parts in OpenAI's form, where LangChain knows how."""
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
    """What pairs a call with its result; a call that could not be read is a call all the same."""
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
