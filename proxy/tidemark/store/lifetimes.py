"""Holds how long conversations are stored: after their last use and at most, by tenant.

Every write asks for it. The server deletes by itself: every key of a conversation expires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tidemark.core.frozen import frozen


@frozen
class Lifetime:
    """Whole seconds, as the scripts take them; 0 for no limit."""

    idle: int = 0
    """After the last use."""
    age: int = 0
    """After the first message, however much the conversation is used."""


class Lifetimes:
    """The lifetimes of all tenants. It holds no other state.

    :param by_tenant: lifetimes by tenant, or by the hex digest of a credential; all others have the usual one
    """

    def __init__(self, usual: Lifetime, by_tenant: Mapping[str, Lifetime] | None = None) -> None:
        self.usual = usual
        self._by_tenant = dict(by_tenant or {})

    @property
    def longest(self) -> int:
        """The longest idle time of any tenant; 0 if one has no limit."""
        idle = [lifetime.idle for lifetime in (self.usual, *self._by_tenant.values())]
        return max(idle) if all(idle) else 0

    def of(self, tenant: str) -> Lifetime:
        return self._by_tenant.get(tenant, self.usual) if self._by_tenant else self.usual


def lifetime(idle_seconds: float | None, age_seconds: float | None = None) -> Lifetime:
    """Return a lifetime in whole seconds; None is no limit."""
    return Lifetime(_whole(idle_seconds), _whole(age_seconds))


def _whole(seconds: float | None) -> int:
    return max(1, math.ceil(seconds)) if seconds else 0
