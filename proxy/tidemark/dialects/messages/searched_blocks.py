"""Decides which content blocks of a reply of several rounds are the client's, streamed or not.

``searched_body.py`` and ``searched_stream.py`` read the rounds. The client gets neither the calls of the search
function nor the thinking that led to them alone, and the thinking of one round at most: providers refuse an answer that
comes back with thinking which the model did not write at once. Source: Anthropic API guide, "Extended thinking".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.messages.blocks import REASONING

_CUT_SHORT = ("max_tokens", "model_context_window_exceeded", "pause_turn", "refusal")
"""Reasons to stop with which a call is not whole, or not the model's last word."""


def is_search(block: Mapping[str, JsonValue]) -> bool:
    """Return whether a block is a call of the search function."""
    return block.get("type") == "tool_use" and block.get("name") == FUNCTION_NAME


def is_thinking(block: Mapping[str, JsonValue]) -> bool:
    """Return whether a block is what the model wrote for itself."""
    return block.get("type") in REASONING


def asks_to_search(message: Message | None, reason: JsonValue) -> bool:
    """Return whether a round that stopped for this reason waits for nothing but searches."""
    calls = message.calls if message is not None else ()
    return bool(calls) and all(call.name == FUNCTION_NAME for call in calls) and reason not in _CUT_SHORT


def clients_blocks(content: Iterable[JsonValue], *, has_earlier: bool, is_over: bool) -> list[JsonValue]:
    """Return the blocks of a round that are the client's.

    :param has_earlier: whether the client has blocks of earlier rounds
    :param is_over: whether no round follows, so that the thinking at the end is the client's too
    """
    blocks: list[JsonValue] = []
    waiting: list[JsonValue] = []
    for block in content:
        if not isinstance(block, dict):
            blocks.append(block)
        elif is_thinking(block):
            waiting += [] if has_earlier else [block]
        elif not is_search(block):
            blocks += [*waiting, block]
            waiting = []
    return blocks + waiting if is_over else blocks
