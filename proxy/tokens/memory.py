"""A bounded memory of counts, so that a turn counts only what is new.

Below ``counting``, which keeps one of messages and one of texts.
"""

from __future__ import annotations

Key = tuple[str, bytes, bytes]
"""How it was counted, a digest of what was counted, and what tells two of one digest apart.

Of a message that is its ``wording``; of a text it is empty; of what a request costs beside its messages it names one of
two figures. The memory is one for all tenants, so a key must say all that the count depends on.
"""


class CountCache:
    """Forgets what was not asked for longest, in two generations.

    Each step is one dict operation, so threads share it without a lock.
    """

    def __init__(self, size: int) -> None:
        self._half = max(1, size // 2)
        self._young: dict[Key, int] = {}
        self._old: dict[Key, int] = {}

    def get(self, key: Key) -> int | None:
        """The count, if it is still known."""
        found = self._young.get(key)
        return self._older(key) if found is None and self._old else found

    def _older(self, key: Key) -> int | None:
        """One that was not asked for since the generation before; now it is young again."""
        found = self._old.get(key)
        if found is not None:
            self.put(key, found)
        return found

    def put(self, key: Key, count: int) -> None:
        """Keep a count; at most ``size`` are kept."""
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = count
