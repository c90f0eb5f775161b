"""Full text over a conversation: what the flow needs of ``proxy/archive/search_index.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Searchable:
    """A message as it is indexed."""

    position: int
    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found."""

    position: int
    snippet: str
    """Around what was found, which stands in brackets."""
    score: float
    """The larger, the better; of one search only."""


class Searches(Protocol):
    """Indexes that are built when somebody asks."""

    def indexed(self, conversation: str) -> tuple[int, str]:
        """How many messages of a conversation are indexed, and the id of the last of them."""
        ...

    async def find(
        self, conversation: str, fresh: Sequence[Searchable], query: str, *, limit: int, offset: int = 0, after: int = 0
    ) -> Sequence[Hit]:
        """The messages in which all words of ``query`` stand, the best first.

        :param after: how many were indexed when ``fresh`` was read
        """
        ...

    def drop(self, conversation: str) -> None:
        """Forget a conversation's texts."""
        ...
