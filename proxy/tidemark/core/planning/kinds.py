"""The kind of a conversation, between a talk and the work of an agent.

In a talk the facts stand in all messages, and a long summary keeps more of them than the newest messages do. An agent
works on what it read last, and a summary of old results is worth less than the newest ones (docs/compaction.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tidemark.core.conversation.messages import Message

_OBSERVATION_TOKENS, _OBSERVATION_LINES = 40, 3
"""A user message with so many tokens and lines is what a program printed: some agents have no tool messages."""


def work_share(messages: Sequence[Message], tokens: Sequence[int], *, is_whole: bool = True) -> float:
    """Return the part of the tokens that stand in steps of an agent: in calls, and in what programs printed.

    The first message does not count: an agent's task is long, and a person's first message says little of the kind.

    :param tokens: of each message
    :param is_whole: whether the first message is the conversation's
    :returns: 0 for a talk to 1 for an agent that nobody talks to
    """
    work = total = before = 0
    for message, size in islice(_client_messages(messages, tokens), int(is_whole), None):
        total += size
        if message.role == "tool" or message.calls:
            work += size
        elif _is_observation(message, size):
            work += size + before
        before = size if message.role == "assistant" and not message.calls else 0
    return work / total if total else 0.0


def _client_messages(messages: Sequence[Message], tokens: Sequence[int]) -> Iterator[tuple[Message, int]]:
    return ((message, size) for message, size in zip(messages, tokens, strict=True) if not message.is_system)


def _is_observation(message: Message, tokens: int) -> bool:
    if message.role != "user" or tokens < _OBSERVATION_TOKENS:
        return False
    return message.text.count("\n") + 1 >= _OBSERVATION_LINES
