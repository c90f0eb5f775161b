"""Gaps: messages of a stored history whose records cannot be read, and the messages that cannot stand without them.

Stored history asks before it aligns the stored messages with the client's. A tool call and its results never part
(promise 3), so a message that has lost its counterpart is left out as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.messages import Message


def places_without_gaps(messages: Sequence[Message | None]) -> list[int]:
    """Return the places of the messages that stand by themselves.

    :param messages: a conversation without its system messages; None for one that cannot be read
    """
    if None not in messages:
        return list(range(len(messages)))
    exchanges: list[list[int]] = [[]]
    for place, message in enumerate(messages):
        if message is not None and message.role != "tool":
            exchanges.append([])
        exchanges[-1].append(place)
    return [place for exchange in exchanges for place in _sound_places(exchange, messages)]


def _sound_places(exchange: Sequence[int], messages: Sequence[Message | None]) -> Sequence[int]:
    """Return what remains of a message and of the results and gaps that follow it."""
    gap = next((number for number, place in enumerate(exchange) if messages[place] is None), None)
    if gap is None:
        return exchange
    first = messages[exchange[0]]
    if first is None or first.role == "tool":
        return []
    calls = len(first.calls)
    if not calls:
        return exchange[:1]
    return exchange[:gap] if gap > calls else []  # either all results stand before the gap, or some are lost
