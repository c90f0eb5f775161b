"""Which system messages a conversation is known to hold, so that they are not sent with every turn.

Asked by the adapter when it writes a turn. It only saves bytes: what it has forgotten is sent again, and the
store keeps one of each.
"""

from __future__ import annotations

_LIMIT = 20_000
"""About 2 MB; an agent with a clock in its system prompt adds one for each turn."""


class BoundedSet:
    """The newest pairs of conversation and digest, the oldest forgotten first."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._pairs: dict[tuple[str, bytes], None] = {}

    def __contains__(self, pair: tuple[str, bytes]) -> bool:
        return pair in self._pairs

    def add(self, pair: tuple[str, bytes]) -> None:
        """Remember ``pair`` as the newest."""
        self._pairs.pop(pair, None)
        self._pairs[pair] = None
        if len(self._pairs) > self._limit:
            del self._pairs[next(iter(self._pairs))]
