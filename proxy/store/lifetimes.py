"""How long conversations are kept: unused, and at most; for all tenants, and for some of their own.

Asked by the adapter with every write. The server forgets by itself: every key of a conversation expires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Whole seconds, as the scripts take them; 0 is for good."""

    idle: int = 0
    """After the last use."""
    age: int = 0
    """After the first message, however much it is used."""


class Lifetimes:
    """What holds for whom; it holds no state beside that.

    :param by_tenant: tenant, or the hex digest of a credential, to what holds in place of the rest
    """

    def __init__(self, usual: Lifetime, by_tenant: Mapping[str, Lifetime] | None = None) -> None:
        self.usual = usual
        self._by_tenant = dict(by_tenant or {})

    @property
    def longest(self) -> int:
        """The longest idle time of anybody's; 0 where somebody's is for good."""
        idle = [one.idle for one in (self.usual, *self._by_tenant.values())]
        return max(idle) if all(idle) else 0

    def of(self, tenant: str) -> Lifetime:
        """What holds for a tenant."""
        return self._by_tenant.get(tenant, self.usual) if self._by_tenant else self.usual


def lifetime(idle_seconds: float | None, age_seconds: float | None = None) -> Lifetime:
    """The same of any numbers; None is for good."""
    return Lifetime(_whole(idle_seconds), _whole(age_seconds))


def _whole(seconds: float | None) -> int:
    return max(1, math.ceil(seconds)) if seconds else 0
