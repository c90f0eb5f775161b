"""Decides who may reach what a provider's account has, if several tenants use that account by one configured key.

The provider sees one key and cannot tell the tenants apart, so Tidemark does (promise 8). What it saw a tenant make is
that tenant's alone. All else follows ``auth.shared_account``. Where clients use their own keys, the provider decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from proxy.core.conversation.prefix import owner_of
from proxy.core.ports import Caller, OwnerStore, Route, Upstream

REMEMBERED_PLACES = 1024
"""Base URLs whose account is cached; a configuration has few."""
ID_PREFIXES = "asst|batch|cntr|container|conv|eval|file|ftjob|msg|msgbatch|resp|run|skill|step|thread|upload|video|vs"
"""How OpenAI's and Anthropic's ids begin, before a hyphen or an underscore."""
_WORD = re.compile(rf"(?!(?:{ID_PREFIXES})_)[a-z]+(?:_[a-z]+)*|file_batches")
"""A part of a path that is no id, but the name of what ids are below (``files``, ``input_items``)."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Whose some objects are, from a caller's point of view."""

    own: Collection[str] = ()
    foreign: Sequence[str] = ()
    """Another tenant's."""
    unseen: Sequence[str] = ()
    """Tidemark did not see who made them."""


@dataclass(frozen=True, slots=True)
class SharedAccounts:
    """Looks owners up, and stores them; it holds no state."""

    upstream: Upstream
    owners: OwnerStore
    is_open: bool
    """Whether everybody may reach what Tidemark did not see made, and list the account (``auth.shared_account``)."""

    async def standing(self, route: Route, caller: Caller, identifiers: Collection[str]) -> Standing:
        """Return whose some objects are; the caller's own are known for longer then.

        :raises StoreUnavailable: nobody knows at present
        """
        names, account = list(dict.fromkeys(identifiers)), account_of(self.upstream, route)
        if not account or not names:
            return Standing(unseen=names)
        owner, makers = owner_of(caller.fingerprint), await self.owners.owners(account, names)
        pairs = list(zip(names, makers, strict=True))
        own = [name for name, maker in pairs if maker == owner]
        await self.owners.renew(account, own)
        return Standing(
            own,
            [name for name, maker in pairs if maker not in (owner, None)],
            [name for name, maker in pairs if maker is None],
        )

    async def unreachable(self, route: Route, caller: Caller, identifiers: Collection[str]) -> Sequence[str]:
        """Return the objects that a caller may not reach over a route.

        :raises StoreUnavailable: nobody knows at present
        """
        if not account_of(self.upstream, route):
            return ()
        standing = await self.standing(route, caller, identifiers)
        return standing.foreign if self.is_open else [*standing.foreign, *standing.unseen]

    async def claim(self, route: Route, caller: Caller, identifiers: Sequence[str]) -> None:
        """Store that a caller has made something.

        :raises StoreUnavailable: the store did not answer in time
        """
        account = account_of(self.upstream, route)
        if account and identifiers:
            await self.owners.claim(account, identifiers, owner_of(caller.fingerprint))


def account_of(upstream: Upstream, route: Route) -> str:
    """Return the name of the account that a route's configured key opens; empty where clients use their own keys.

    Two keys at one address count as one account, because ids of one provider are unique.
    """
    return "" if upstream.needs_callers_key(route) else _place(route.base_url) or route.provider


def names_of_path(path: str) -> list[str]:
    """Return the parts of a path, behind the first one, that may be ids: as upstreams read them.

    Ids have digits, capitals, hyphens or one of the known beginnings.

    :param path: below the base URL, as the client wrote it
    """
    return [name for name in steps_of(path)[1:] if not _WORD.fullmatch(name)]


def steps_of(path: str) -> list[str]:
    """Return the parts of a path without escapes; some servers drop what follows a semicolon, and white space."""
    steps = unquote(path.partition("?")[0]).replace("\\", "/").split("/")
    return [name for step in steps if (name := step.partition(";")[0].strip(" \t\r\n\0"))]


@lru_cache(REMEMBERED_PLACES)
def _place(base_url: str) -> str:
    """Return an address without a user, a password or a query, which may be secret."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else ""
