"""The kind of a conversation, between a talk and the work of an agent.

In a talk the facts stand in all messages, and a long summary keeps more of them than the newest messages do. An agent
works on what it read last, and a summary of old results is worth less than the newest ones (docs/compaction.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.messages import Message

_OBSERVATION_TOKENS, _OBSERVATION_LINES = 100, 5
"""A user message with so many tokens and lines is what a program printed: some agents have no tool messages."""


def work_share(messages: Sequence[Message], tokens: Sequence[int]) -> float:
    """Return the part of the tokens that stand in calls, in their results and in what programs printed, 0 to 1.

    The first message does not count: an agent's task is long, and a person's first message says little of the kind.

    :param tokens: of each message
    """
    work = total = 0
    is_first = True
    for message, size in zip(messages, tokens, strict=True):
        if message.is_system or is_first:
            is_first &= message.is_system
            continue
        total += size
        if message.role == "tool" or message.calls or _is_observation(message, size):
            work += size
    return work / total if total else 0.0


def _is_observation(message: Message, tokens: int) -> bool:
    if message.role != "user" or tokens < _OBSERVATION_TOKENS:
        return False
    return message.text.count("\n") >= _OBSERVATION_LINES
