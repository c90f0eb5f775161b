"""Decides who may reach what a provider's account has, if several tenants use that account by one configured key.

The provider sees one key and cannot tell the tenants apart, so Tidemark does (promise 8). What it saw a tenant make is
that tenant's alone. All else follows ``auth.shared_account``. If clients use their own keys, the provider decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import ObjectNotFound
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, OwnerStore, Route, Upstream
from tidemark.pipeline.walk import Walk

REMEMBERED_PLACES = 1024
"""Base URLs whose account is cached; a configuration has few."""
ID_PREFIXES = "asst|batch|cntr|container|conv|eval|file|ftjob|msg|msgbatch|resp|run|skill|step|thread|upload|video|vs"
"""How OpenAI's and Anthropic's ids begin, before a hyphen or an underscore."""
PROVIDERS_ID = re.compile(
    rf"(?:{ID_PREFIXES})[-_](?:(?=[a-z]*[0-9A-Z])[A-Za-z0-9]{{8,}}|[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})"
)
"""The form of a provider's ids, which the names of files and stores (``file_reader.py``, ``file-list``) lack."""
_WORD = re.compile(rf"(?!(?:{ID_PREFIXES})_)[a-z]+(?:_[a-z]+)*|file_batches")
"""A part of a path that is no id, but a word above ids (``files``, ``input_items``)."""


_ESCAPED = re.compile(rb"\\u00([2-7][0-9A-Fa-f])")
"""A character of ASCII that is written as an escape, which could hide an id."""
_PLAIN = re.compile(r"[a-z]+(?:_[a-z]+)*")
MENTIONED = re.compile(rb'"((?:cntr|container|file|skill|vs)[-_][A-Za-z0-9._-]{1,255})"')
"""What requests to models name, and the words that look like it (``is_word``)."""


@frozen
class Standing:
    """Whose some objects are, from a caller's point of view."""

    own: Collection[str] = ()
    foreign: Sequence[str] = ()
    """Another tenant's."""
    unseen: Sequence[str] = ()
    """Tidemark did not see who made them."""


@frozen
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

    async def unreachable(
        self, route: Route, caller: Caller, identifiers: Collection[str], mentioned: Collection[str] = ()
    ) -> Sequence[str]:
        """Return the objects that a caller may not reach over a route.

        :param mentioned: texts that may be ids; what Tidemark did not see made counts if it looks like a provider's id
        :raises StoreUnavailable: nobody knows at present
        """
        if not account_of(self.upstream, route):
            return ()
        standing = await self.standing(route, caller, [*identifiers, *mentioned])
        if self.is_open:
            return standing.foreign
        unseen = [name for name in standing.unseen if name in identifiers or PROVIDERS_ID.fullmatch(name)]
        return [*standing.foreign, *unseen]

    async def check_mentioned(self, route: Route, request: ModelRequest, caller: Caller) -> None:
        """Refuse a request to a model that names files, vector stores or containers which its caller may not reach.

        :raises ObjectNotFound: it does
        :raises StoreUnavailable: nobody knows at present
        """
        names = _mentioned(request) if account_of(self.upstream, route) else ()
        for name in await self.unreachable(route, caller, (), names) if names else ():
            raise ObjectNotFound(name, is_open=self.is_open)

    async def claim(self, route: Route, caller: Caller, identifiers: Sequence[str]) -> None:
        """Store that a caller has made something.

        :raises StoreUnavailable: the store did not answer in time
        """
        account = account_of(self.upstream, route)
        if account and identifiers:
            await self.owners.claim(account, identifiers, owner_of(caller.fingerprint))


def account_of(upstream: Upstream, route: Route) -> str:
    """Return the name of the account that a route's configured key opens; empty if clients use their own keys.

    Two keys at one address count as one account, because ids of one provider are unique.
    """
    return (_place(route.base_url) or route.provider) if upstream.has_credential(route) else ""


def names_of_path(path: str) -> list[str]:
    """Return the parts of a path, behind the first one, that may be ids: as upstreams read them.

    Ids have digits, capitals, hyphens or one of the known beginnings.

    :param path: below the base URL, as the client wrote it
    """
    return [name for name in steps_of(path)[1:] if not _WORD.fullmatch(name)]


def texts_of_query(path: str) -> list[str]:
    """Return the values of a path's query that may be ids, such as a cursor (``after``)."""
    values = [value for _, value in parse_qsl(path.partition("?")[2])]
    return [value for value in values if not (value.isalpha() or value.isdecimal() or is_word(value))]


def steps_of(path: str) -> list[str]:
    """Return the parts of a path without escapes; some servers drop what follows a semicolon, and white space."""
    steps = unquote(path.partition("?")[0]).replace("\\", "/").split("/")
    return [name for step in steps if (name := step.partition(";")[0].strip(" \t\r\n\0"))]


def is_word(text: str) -> bool:
    """Return whether a text of JSON is a name of an API (``file_id``, ``file_search``); ids have digits or capitals."""
    return _PLAIN.fullmatch(text) is not None


def unescaped(data: bytes) -> bytes:
    """Return JSON without the escapes of characters of ASCII, so that ids can be searched in it."""
    if b"\\u00" not in data:
        return data
    return _ESCAPED.sub(lambda escape: bytes((int(escape[1], 16),)), data)


def _mentioned(request: ModelRequest) -> list[str]:
    """Return the ids of a provider's objects in a request, by the members that have them in any dialect.

    Most requests have none, and cost a search for a few words.
    """
    fields, names = request.fields, []
    messages, tools = fields.get(request.dialect.messages_member, b""), fields.get("tools", b"")
    parts = [messages] if b"file_id" in messages or b"\\u00" in messages else []
    if tools and any(mark in tools for mark in (b"file_id", b"vector_store", b'"container"', b"\\u00")):
        parts.append(tools)
    if "container" in fields:
        parts.append(fields["container"])
    for part in parts:
        texts = [name.decode() for name in MENTIONED.findall(unescaped(part))]
        names += [name for name in texts if not is_word(name)]
    return names


@lru_cache(REMEMBERED_PLACES)
def _place(base_url: str) -> str:
    """Return an address without a user, a password or a query, which may be secret."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else ""


class CheckAccounts:
    """The step ``check_accounts``: refuses requests that name what their caller may not reach."""

    def __init__(self, accounts: SharedAccounts) -> None:
        self._accounts = accounts

    async def __call__(self, walk: Walk) -> Walk:
        await self._accounts.check_mentioned(walk.context.route, walk.request, walk.caller)
        return walk
