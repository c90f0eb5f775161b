"""A bounded cache of token counts, so that a turn counts only its new messages.

``counting`` has one for messages and one for texts.
"""

from __future__ import annotations

Key = tuple[str, bytes, bytes]
"""The scheme's key, a digest of the counted value, and a distinction between values of one digest.

The third part is a message's ``wording``. It is empty for a text, and names one of two figures for a request's fixed
tokens. All tenants share the cache, so a key must contain everything that the count depends on.
"""


class CountCache:
    """Evicts the counts that were not used for longest, in two generations.

    Each step is one dict operation, so threads share it without a lock.
    """

    def __init__(self, size: int) -> None:
        self._half = max(1, size // 2)
        self._young: dict[Key, int] = {}
        self._old: dict[Key, int] = {}

    def get(self, key: Key) -> int | None:
        """Return a count, if it is cached."""
        count = self._young.get(key)
        return self._older(key) if count is None and self._old else count

    def _older(self, key: Key) -> int | None:
        """Return a count of the older generation, and move it to the younger one."""
        count = self._old.get(key)
        if count is not None:
            self.put(key, count)
        return count

    def put(self, key: Key, count: int) -> None:
        """Cache a count; the cache contains at most ``size``."""
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = count
