"""Writes the body of a chat request from a request of another dialect: what both bridges have in common.

The conversation comes from the core's messages, which are the same in every dialect; each bridge adds its members.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from tidemark.core.conversation.messages import JsonValue, Message, system_message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.thinking import ANY_SIGNATURE
from tidemark.dialects.bodies import array_of, body_of
from tidemark.dialects.raw_json import read_json
from tidemark.upstream.bridges.json_members import Members, object_of, objects_of, value_of
from tidemark.upstream.bridges.thinking import Blocks, Demand, blocks_of, reasoning_of

ChatGoal = Literal["server", "openai", "litellm"]
"""Who takes the chat request: any server that speaks it, OpenAI itself, or litellm."""
WriteMessage = Callable[[Message], bytes]
"""Writes a message of any dialect as one of chat completions."""
NAME = "cache_control"
"""The client's cache marks, which Claude behind litellm takes in chat messages, too. Without them Bedrock and Vertex
would read a long conversation anew with each request. Source: Anthropic's guide "Prompt caching"; litellm's guide."""
CACHE_MARK = b'"cache_control"'
"""In the bytes of a request that has any."""
Mark = Mapping[str, JsonValue]


class RequestBridge(Protocol):
    """Says in chat completions what a dialect's request says beside its messages."""

    def members_of(self, request: ModelRequest) -> Members:
        """Return the members of the chat request.

        :raises InvalidRequest: chat completions cannot say it; ``param`` names the member
        """
        ...

    def left_out(self, request: ModelRequest) -> Sequence[str]:
        """Return the members whose loss the client must hear of; chat completions has nothing like them."""
        ...

    def system_of(self, request: ModelRequest) -> str:
        """Return the system text that stands beside the messages."""
        ...

    def adapted(self, request: ModelRequest, message: Message) -> Message:
        """Return a message as it must be written in chat completions."""
        ...


def chat_body(
    request: ModelRequest,
    bridge: RequestBridge,
    write: WriteMessage,
    goal: ChatGoal = "server",
    *,
    demands: Collection[Demand] = (),
) -> bytes:
    """Write the body of the chat request that means the same.

    :param goal: OpenAI's newer models refuse ``max_tokens``, as all do ``top_k``; litellm takes signed thinking,
        and cache marks of Claude
    :param demands: what the upstream wants of each answer: its reasoning, empty if nobody knows it; signed calls
    :raises InvalidRequest: chat completions cannot say it
    """
    members: Members = {"model": request.model, **bridge.members_of(request)}
    if goal == "openai":
        members.pop("top_k", None)
        if "max_tokens" in members:
            members["max_completion_tokens"] = members.pop("max_tokens")
    if request.stream:
        members |= {"stream": True, "stream_options": {"include_usage": True}}
    raws = [write(bridge.adapted(request, message)) for message in request.messages]
    if demands:
        raws = [_completed(raw, message, demands) for raw, message in zip(raws, request.messages, strict=True)]
    system_mark: Mark | None = None
    if goal == "litellm":
        thinking = [blocks_of(message) for message in request.messages]
        raws = [
            _with_member(raw, "thinking_blocks", blocks) if blocks else raw
            for raw, blocks in zip(raws, thinking, strict=True)
        ]
        is_claude = "claude" in request.model.lower()
        if is_claude and _calls_without_thinking(request.messages, thinking):
            members.pop("reasoning_effort", None)
        if is_claude and CACHE_MARK in request.body:
            marks = [mark_of(message.raw) for message in request.messages]
            raws = [with_mark(raw, mark) if mark else raw for raw, mark in zip(raws, marks, strict=True)]
            if "tools" in members:
                members["tools"] = with_tool_marks(members["tools"], value_of(request.fields, "tools"))
            system_mark = last_mark(value_of(request.fields, request.dialect.system_member))
    if system := bridge.system_of(request):
        first = write(system_message(system))
        raws.insert(0, first if system_mark is None else with_mark(first, system_mark))
    fields = {name: json.dumps(value).encode() for name, value in members.items()}
    return body_of({**fields, "messages": array_of(raws)}, {})


def _completed(raw: bytes, message: Message, demands: Collection[Demand]) -> bytes:
    """Return an answer with what its upstream demands; of parallel calls, Gemini wants the first one signed."""
    if message.role == "assistant" and "reasoning" in demands:
        raw = _with_member(raw, "reasoning_content", reasoning_of(message))
    if message.calls and "signatures" in demands:
        calls = json.loads(raw)["tool_calls"]
        raw = _with_member(raw, "tool_calls", [{**calls[0], **ANY_SIGNATURE}, *calls[1:]])
    return raw


def _with_member(raw: bytes, name: str, content: str | Blocks) -> bytes:
    return json.dumps({**json.loads(raw), name: content}).encode()


def _calls_without_thinking(messages: Sequence[Message], thinking: Sequence[Blocks]) -> bool:
    """Return whether results of calls without thinking end the request: Claude then takes no effort for thinking."""
    newest = next((place for place in range(len(messages) - 1, -1, -1) if messages[place].role != "tool"), None)
    return newest is not None and bool(messages[newest].calls) and not thinking[newest]


def mark_of(raw: bytes) -> Mark | None:
    """Return the last cache mark in a message's own bytes; None without one."""
    if CACHE_MARK not in raw:
        return None
    return last_mark(object_of(read_json(raw)).get("content"))


def last_mark(blocks: JsonValue) -> Mark | None:
    """Return the last cache mark of some blocks; None without one."""
    marks = [block[NAME] for block in objects_of(blocks) if isinstance(block.get(NAME), dict)]
    return object_of(marks[-1]) if marks else None


def with_mark(raw: bytes, mark: Mark) -> bytes:
    """Return a chat message with a mark: on its last part, or on itself if its content is a text."""
    message: dict[str, Any] = json.loads(raw)
    content = message.get("content")
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        content[-1] = {**content[-1], NAME: mark}
    else:
        message[NAME] = mark
    return json.dumps(message).encode()


def with_tool_marks(tools: JsonValue, original: JsonValue) -> JsonValue:
    """Return chat tools with the marks of the client's.

    :param tools: as chat completions has them
    :param original: as the client sent them, perhaps with tools that were left out
    """
    marks = {tool.get("name"): tool[NAME] for tool in objects_of(original) if isinstance(tool.get(NAME), dict)}
    marked: list[JsonValue] = []
    for tool in objects_of(tools):
        mark = marks.get(object_of(tool.get("function")).get("name"))
        members: Members = {**tool, NAME: mark} if mark is not None else {**tool}
        marked.append(members)
    return marked
