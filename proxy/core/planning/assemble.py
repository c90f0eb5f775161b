"""Assembly: the messages that are forwarded in place of the client's.

On the road of a request after the plan, and the summary that it asks for, and before the upstream: head, summary
message, kept turns. Nothing is reordered and every kept message is the client's own (promises 1 and 2).
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.conversation.messages import Message
from proxy.core.conversation.summary import PrefixSummary, render_summary


def assemble(messages: Sequence[Message], summary: PrefixSummary) -> tuple[Message, ...]:
    """Put ``summary`` in the place of the first ``summary.covered`` non-system messages (FR-1.5.1).

    The client's leading system messages come first; system messages that stood inside the replaced prefix
    follow the summary in order, but for those that the summary took in.

    :raises ValueError: the summary covers as many messages as there are, so the newest one would be lost
    """
    said = [place for place, message in enumerate(messages) if not message.is_system]
    if not 0 < summary.covered < len(said):
        message = f"a summary of {summary.covered} messages does not stand before any of {len(said)}"
        raise ValueError(message)
    first, kept_from = said[0], said[summary.covered]
    absorbed = set(summary.absorbed)
    inside = messages[first:kept_from]
    inner = [message for message in inside if message.is_system and message.digest not in absorbed]
    return (*messages[:first], render_summary(summary), *inner, *messages[kept_from:])
