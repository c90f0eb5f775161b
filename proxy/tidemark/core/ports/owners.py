"""The port of who made what a provider's account has; ``tidemark/store/owners.py`` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class OwnerStore(Protocol):
    """Which credential made what, by account and id; no content."""

    async def owners(self, account: str, identifiers: Sequence[str]) -> Sequence[str | None]:
        """Return who made each object of an account; None for what nobody was seen to make.

        :raises StoreUnavailable: the store did not answer in time, and this process does not know all of them
        """
        ...

    async def claim(self, account: str, identifiers: Sequence[str], owner: str) -> None:
        """Store who made objects of an account; if an id was used before, the newest owner counts.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def renew(self, account: str, identifiers: Sequence[str]) -> None:
        """Let owners be known for as long as if they were new; an outage changes nothing."""
        ...
