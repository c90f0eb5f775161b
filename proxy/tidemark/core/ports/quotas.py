"""The port of quotas: it counts what tenants and keys use, for all workers and replicas of one store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from tidemark.core.frozen import frozen
from tidemark.core.grants import Quota

UsedUp = Literal["", "requests", "tokens", "concurrent"]


@frozen
class Bound:
    """A quota, and whose it is within a tenant."""

    name: str
    """The id of a key; empty for the tenant itself."""
    quota: Quota


@frozen
class Use:
    """What has been used of one bound, with the request that asks."""

    requests: int = 0
    """Of the last minute."""
    requests_reset: float = 0.0
    """Seconds until none of them counts any more."""
    tokens: int = 0
    """Of the day, which begins at midnight of UTC."""
    tokens_reset: float = 0.0
    """Seconds until the next day."""


@frozen
class Taken:
    """The answer to a request that asks for its place."""

    used_up: UsedUp
    """What a bound has no more of; empty if the request may go on."""
    bound: int
    """The place of that bound among those that were asked for."""
    retry_after: float
    """Seconds until a request may succeed."""
    uses: Sequence[Use]
    """By bound."""


class QuotaStore(Protocol):
    """Counts requests, tokens and requests in progress. Each method raises ``StoreUnavailable``."""

    async def take(self, owner: str, bounds: Sequence[Bound], lease: str) -> Taken:
        """Count a request against all bounds, or against none if one of them is used up.

        :param lease: names the request while it is in progress; a lease that nobody renews ends by itself
        """
        ...

    async def give_back(self, owner: str, bounds: Sequence[Bound], lease: str, tokens: int) -> None:
        """End a request, and count what it took."""
        ...

    async def renew(self, owner: str, bounds: Sequence[Bound], leases: Sequence[str]) -> None:
        """Let requests of a tenant go on to count as being in progress."""
        ...
