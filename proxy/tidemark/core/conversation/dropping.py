"""Dropping: how many of its oldest messages a client left out since an earlier request.

Chat front ends send their newest messages only: the last twenty, or as many as fit. So each request begins with another
message, and its prefix is no stored conversation's. ``pipeline/dropping_clients.py`` asks here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tidemark.core.frozen import frozen

PROOF = 4
"""So many messages in a row, which both requests have, show that both are of one talk."""
MOST_DROPPED = 0.5
"""A client that drops a larger part of its messages at once begins anew, or has another setting."""
MOST_STARTS = 16
"""Places that are compared as a whole. A talk of equal messages has as many as messages."""
MOST_HEAD = 2
"""Some clients keep so many of the first messages. Whoever deletes in the middle of a talk means these messages."""


@frozen
class Dropped:
    """What a request has no more."""

    head: int
    """How many first messages stay nevertheless, such as a front end's first line."""
    count: int
    """How many messages behind them are gone; 0 if the request begins as before."""


def dropped_messages(
    before: Sequence[bytes], now: Sequence[bytes], summarized: int = 0, *, head: int | None = None
) -> Dropped | None:
    """Find out what a request has dropped of an earlier one; None if it begins otherwise.

    What follows may differ: a client moves its notes, or repeats a question without what it had looked up for it.

    :param before: digests of the earlier request's messages
    :param now: those of the later one
    :param summarized: how many of the earlier ones a summary stands for; of these, all that stay must be the same
    :param head: ``Dropped.head`` of the earlier request, if it had dropped messages itself
    """
    heads = [0, *range(1, MOST_HEAD + 1)] if head is None else [head]
    for place in heads:
        if before[:place] != now[:place]:
            break
        count = _count(before[place:], now[place:], max(summarized - place, 0))
        if count is not None:
            return Dropped(place, count)
    return None


def _count(before: Sequence[bytes], now: Sequence[bytes], summarized: int) -> int | None:
    for count in islice(_starts(before, now), MOST_STARTS):
        if count <= MOST_DROPPED * len(before) and before[count:summarized] == now[: max(summarized - count, 0)]:
            return count
    return None


def _starts(before: Sequence[bytes], now: Sequence[bytes]) -> Iterator[int]:
    """Find the places of an earlier request at which a later one may begin."""
    for place in range(len(before) - PROOF + 1):
        if before[place] == now[0] and before[place : place + PROOF] == now[:PROOF]:
            yield place
