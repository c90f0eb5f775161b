"""Assembly: puts a summary message in the place of a request's oldest messages.

It comes after the plan and the summary, and before the upstream. The result is the head, the summary message and the
remaining messages, in the client's order and bytes (promises 1 and 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import MaskedResults, PrefixSummary, render_summary

ReplaceMiddle = Callable[[Message, int, int, str], Message]


def assemble(
    messages: Sequence[Message],
    summary: PrefixSummary,
    left_out: int = 0,
    *,
    standing: Sequence[Message] = (),
    replace_middle: ReplaceMiddle | None = None,
) -> tuple[Message, ...]:
    """Put ``summary`` in the place of the first ``summary.covered`` non-system messages (FR-1.5.1).

    The client's leading system messages come first; system messages that stood inside the replaced prefix
    follow the summary in order, without those that the summary absorbed.

    :param left_out: how many of the non-system messages that the summary stands for are not among ``messages``
    :param standing: the summary in its provider's own form, in place of the summary message
    :param replace_middle: the dialect's function that puts a line in the place of a masked result
    :raises ValueError: the summary covers as many messages as there are, so the newest one would be lost
    """
    if summary.masked is not None and replace_middle is not None:
        messages, base = with_lines(messages, summary.masked, replace_middle), summary.masked.base
        if base is None:
            return tuple(messages)
        summary = base
    client_places = [place for place, message in enumerate(messages) if not message.is_system]
    count = left_out + len(client_places)
    if not max(left_out, 1) <= summary.covered < count:
        message = f"a summary of {summary.covered} messages does not stand before any of {count}"
        raise ValueError(message)
    first, rest = client_places[0], client_places[summary.covered - left_out]
    absorbed = set(summary.absorbed)
    inside = messages[first:rest]
    inner = [message for message in inside if message.is_system and message.digest not in absorbed]
    return (*messages[:first], *(standing or (render_summary(summary),)), *inner, *messages[rest:])


def with_lines(messages: Sequence[Message], masked: MaskedResults, replace_middle: ReplaceMiddle) -> list[Message]:
    """Return all messages of a request, with a line in the place of each masked result."""
    places = [place for place, message in enumerate(messages) if not message.is_system]
    changed = list(messages)
    for position, line in masked.lines:
        result = messages[places[position]]
        changed[places[position]] = replace_middle(result, 0, len(result.text), line)
    return changed
