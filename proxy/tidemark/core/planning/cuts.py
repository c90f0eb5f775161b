"""Cuts: the places where a summary may end, never between a tool call and its results (promise 3).

``candidates.py`` and ``clip.py`` use them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.messages import Message


def open_cuts(messages: Sequence[Message]) -> list[bool]:
    """Return whether a cut is allowed before each message and at the end, as ``len(messages) + 1`` flags.

    A cut is not allowed between a tool call and one of its results (promise 3). A result belongs to the last call of
    its id before it, since some servers reuse one id. A result directly after a call or another result belongs there,
    whatever its id. A call without a result leaves its turn open up to the next message of the user.
    """
    last_use = list(range(len(messages)))
    callers: dict[str, int] = {}
    unanswered: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.answers is not None and message.answers in callers:
            caller = callers[message.answers]
            last_use[caller] = index
            unanswered.pop(message.answers, None)
        if message.role == "user":
            unanswered.clear()
        for call in message.calls:
            callers[call.id] = index
            unanswered[call.id] = index
    for caller in unanswered.values():
        last_use[caller] = len(messages)
    allowed = [True]
    reach = -1
    for index in range(len(messages)):
        reach = max(reach, last_use[index])
        follows = index + 1 < len(messages) and messages[index + 1].role == "tool"
        separates = follows and (messages[index].role == "tool" or bool(messages[index].calls))
        allowed.append(reach <= index and not separates)
    return allowed
