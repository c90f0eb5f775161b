"""Writes the body of a chat request from a request of another dialect: what both bridges have in common.

The conversation comes from the core's messages, which are the same in every dialect; each bridge adds its members.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from tidemark.core.conversation.messages import Message, system_message
from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects.bodies import array_of, body_of
from tidemark.upstream.bridges.cache_marks import CACHE_MARK, Mark, last_mark, mark_of, with_mark, with_tool_marks
from tidemark.upstream.bridges.thinking import Blocks, blocks_of, reasoning_of
from tidemark.upstream.bridges.values import Members, value_of

ChatGoal = Literal["server", "openai", "litellm"]
"""Who takes the chat request: any server that speaks it, OpenAI itself, or litellm."""
WriteMessage = Callable[[Message], bytes]
"""Writes a message of any dialect as one of chat completions."""


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
    with_reasoning: bool = False,
) -> bytes:
    """Write the body of the chat request that means the same.

    :param goal: OpenAI's newer models refuse ``max_tokens``, as all do ``top_k``; litellm takes signed thinking,
        and cache marks of Claude
    :param with_reasoning: whether each answer has its reasoning, empty where nobody knows it
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
    if with_reasoning:
        raws = [
            _with_member(raw, "reasoning_content", reasoning_of(message)) if message.role == "assistant" else raw
            for raw, message in zip(raws, request.messages, strict=True)
        ]
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


def _with_member(raw: bytes, name: str, content: str | Blocks) -> bytes:
    return json.dumps({**json.loads(raw), name: content}).encode()


def _calls_without_thinking(messages: Sequence[Message], thinking: Sequence[Blocks]) -> bool:
    """Return whether results of calls without thinking end the request: Claude then takes no effort for thinking."""
    newest = next((place for place in range(len(messages) - 1, -1, -1) if messages[place].role != "tool"), None)
    return newest is not None and bool(messages[newest].calls) and not thinking[newest]
