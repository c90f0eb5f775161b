"""Holds how long conversations are stored: after their last use and at most, by tenant and model.

Every write asks for it. The server deletes by itself: every key of a conversation expires.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from tidemark.core.frozen import frozen


@frozen
class Lifetime:
    """Whole seconds, as the scripts take them; 0 for no limit."""

    idle: int = 0
    """After the last use."""
    age: int = 0
    """After the first message, however much the conversation is used."""
    tenants_idle: int | None = None
    """The tenant's, if a model may have another."""


class Lifetimes:
    """The lifetimes of all tenants. It holds no other state.

    :param by_tenant: lifetimes by tenant, or by the hex digest of a credential; all others have the usual one
    :param idle_of: returns a model's own idle time in whole seconds; None: the tenant's applies
    :param idles: all that ``idle_of`` returns
    :param idle_as_usual: tenants that state no idle time, so that a longer one of a model holds for them too
    """

    def __init__(
        self,
        usual: Lifetime,
        by_tenant: Mapping[str, Lifetime] | None = None,
        idle_of: Callable[[str], int | None] | None = None,
        idles: Collection[int] = (),
        idle_as_usual: Collection[str] = (),
    ) -> None:
        self.usual = usual
        self._by_tenant = dict(by_tenant or {})
        self._idle_of = idle_of
        self._idles = tuple(idles)
        self._idle_as_usual = frozenset(idle_as_usual)

    @property
    def longest(self) -> int:
        """The longest idle time of any tenant or model; 0 if one has no limit."""
        idle = [lifetime.idle for lifetime in (self.usual, *self._by_tenant.values())]
        return max([*idle, *self._idles]) if all(idle) else 0

    def of(self, tenant: str, model: str = "") -> Lifetime:
        """Return the lifetime of a conversation whose last request named a model.

        A model's idle time replaces the usual one. A tenant's own stands beside it: the shorter one applies.

        :param model: as the client named it; empty for what has none
        """
        own = self._by_tenant.get(tenant) if self._by_tenant else None
        lifetime = own or self.usual
        if self._idle_of is None:
            return lifetime
        idle = self._idle_of(model) if model else None
        is_own = own is not None and tenant not in self._idle_as_usual
        if idle is None or (is_own and 0 < lifetime.idle < idle):
            idle = lifetime.idle
        return Lifetime(idle, lifetime.age, lifetime.idle)


def lifetime(idle_seconds: float | None, age_seconds: float | None = None) -> Lifetime:
    """Return a lifetime in whole seconds; None is no limit."""
    return Lifetime(_whole(idle_seconds), _whole(age_seconds))


def _whole(seconds: float | None) -> int:
    return max(1, math.ceil(seconds)) if seconds else 0
