"""A reply of several rounds, where the model calls the search function: what a dialect reads of each round.

``pipeline/search_rounds.py`` goes from one round to the next. For the client all rounds are one reply.
"""

from __future__ import annotations

from typing import Protocol

from tidemark.core.conversation.messages import Message


class SearchedReply(Protocol):
    """Reads a reply over its rounds, and returns what of it is the client's.

    In a stream ``read`` takes whole events, else the whole body of a round.
    """

    calls: Message | None
    """The message of the round that has ended, where it calls for searches alone; None where the reply is over."""

    def read(self, data: bytes) -> bytes:
        """Return the client's part of the next bytes.

        No call of the function is in it, and no end of a round that calls it.
        """
        ...

    def next_round(self) -> None:
        """Begin the next round."""
        ...

    def end(self) -> bytes:
        """Return what ends the client's reply where its calls cannot be answered."""
        ...
