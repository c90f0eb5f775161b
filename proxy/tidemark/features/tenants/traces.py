"""Finds everything that a store holds of one tenant.

``trace_eraser.py`` deletes what is found here and ``export.py`` writes it, so that both agree. A family of
conversations belongs to one tenant, since the chain's seed holds the tenant. So the records of conversations say whose
their families are, and the name of a key says the rest (``store/keys.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.core.conversation.prefix import FAMILY_CHARACTERS
from tidemark.core.errors import InvalidRequest
from tidemark.core.traffic import OTHER
from tidemark.store import keys
from tidemark.store.elements import ELEMENTS, Element, read_pages
from tidemark.store.encryption.cipher import key_id_of
from tidemark.store.encryption.keyring import MARK, KeyRing, scope_of
from tidemark.store.places import FAMILY, KeyPlace, place_of
from tidemark.store.whole_store import KeyScan, WholeStore

_LARGE_ELEMENTS = 16
"""Entries of a flush queue that are read at once: each has the messages that left together."""
_OWN_KINDS = frozenset({"k", "w", "u", "uw", "ci", "i"})
"""The kinds of keys whose name ends with the owner."""


@dataclass(slots=True)
class Traces:
    """What belongs to a tenant. Mutable: it grows while the store is gone through."""

    owner: str
    families: set[str] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)
    """The owner's credential at each upstream, by which flushes and daily files go."""
    conversations: set[str] = field(default_factory=set)
    api_keys: set[str] = field(default_factory=set)
    """Keys of its conversations of the Conversations API."""


async def owners_in(store: WholeStore) -> Mapping[str, set[str]]:
    """Return every owner that a store knows, with its credentials at upstreams."""
    owners: dict[str, set[str]] = {}
    async for names in KeyScan(store).pages():
        for name in names:
            place = place_of(name)
            if place is None:
                continue
            if place.area == FAMILY and place.kind == "c":
                owner, tenant = await _whose(store, name)
                if owner or tenant:
                    owners.setdefault(owner or tenant, set()).add(tenant)
            elif place.area in ("requests", "traffic"):
                for owner in await _owners_of_shared(store, name, place):
                    owners.setdefault(owner, set())
            elif not place.area and place.kind in _OWN_KINDS and place.rest != b"all":
                owners.setdefault(place.rest.decode(errors="replace"), set())
    return owners


async def _owners_of_shared(store: WholeStore, name: bytes, place: KeyPlace) -> set[str]:
    """Return whose requests the log has, or who has figures; of some there is nothing else."""
    owners = set[bytes]()
    if (place.area, place.kind) == ("requests", "s"):
        async for page in read_pages(store, name):
            owners |= {fields_of(element).get(b"o", b"") for element in page.elements}
    elif (place.kind, place.rest) == ("n", b"t"):
        owners |= {*await store.call("ZRANGE", name, 0, -1)} - {OTHER.encode()}
    return {owner.decode(errors="replace") for owner in owners - {b""}}


async def find_owner(store: WholeStore, tenant_keys: KeyRing | None, text: str) -> str:
    """Return the owner that a fingerprint, or the beginning of one, names.

    :raises InvalidRequest: there is none, or there are several
    """
    owners = dict(await owners_in(store))
    if tenant_keys is not None:
        for scope, owner in (await asyncio.to_thread(tenant_keys.owners)).items():
            owners.setdefault(owner or scope, set())
    owners.pop("", None)
    fitting = [
        owner
        for owner, tenants in owners.items()
        if text and (owner.startswith(text) or any(tenant.startswith(text) for tenant in tenants))
    ]
    if text in owners:
        fitting = [text]
    if not fitting:
        raise InvalidRequest(f"Nothing is stored for a tenant {text}.", param="tenant")
    if len(fitting) > 1:
        raise InvalidRequest(f"{len(fitting)} tenants begin with {text}. Name more of the fingerprint.", param="tenant")
    return fitting[0]


async def traces_of(store: WholeStore, owner: str) -> Traces:
    """Go through the store once, and return what belongs to an owner."""
    traces = Traces(owner, tenants={owner})
    for conversation in await store.call("ZRANGE", keys.owner_index(owner), 0, -1):
        traces.families.add(conversation[:FAMILY_CHARACTERS].decode())
    for identifier in await store.call("SMEMBERS", keys.kept_index(owner)):
        traces.api_keys.add(keys.kept_conversation(owner, identifier.decode(errors="surrogateescape")))
    async for names in KeyScan(store).pages():
        for name in names:
            place = place_of(name)
            if place is not None and place.area == FAMILY and place.kind == "c":
                stored_owner, tenant = await _whose(store, name)
                if owner == (stored_owner or tenant):
                    traces.families.add(place.family)
                    traces.conversations.add(place.family + place.rest.decode())
                    traces.tenants.add(tenant)
    return traces


async def has_sealed(store: WholeStore, traces: Traces) -> bool:
    """Tell whether any of the tenant's conversations begins with a sealed message."""
    for conversation in traces.conversations:
        oldest: bytes = await store.call("LINDEX", keys.message_list(conversation), 0) or b""
        if oldest.startswith(MARK):
            return True
    return False


async def _whose(store: WholeStore, name: bytes) -> tuple[str, str]:
    owner, tenant = await store.call("HMGET", name, "owner", "tenant")
    return (owner or b"").decode(), (tenant or b"").decode()


class OwnKeys:
    """Tells what of a store is one tenant's. It holds no state of its own.

    :param traces: what was found by ``traces_of``; it may grow meanwhile
    """

    def __init__(self, store: WholeStore, traces: Traces) -> None:
        self._store = store
        self._traces = traces
        self._scope = scope_of(traces.owner)

    async def pages(self) -> AsyncIterator[Sequence[tuple[bytes, KeyPlace]]]:
        """Go through the store once, and yield what its keys are for; the tenant's may be among them."""
        async for names in KeyScan(self._store).pages():
            places = ((name, place_of(name)) for name in dict.fromkeys(names))
            yield [(name, place) for name, place in places if place is not None]

    async def owns(self, name: bytes, place: KeyPlace) -> bool:
        """Return whether a whole key is the tenant's."""
        traces, rest = self._traces, place.rest.decode(errors="replace")
        if place.area == FAMILY:
            return place.kind != "x" and place.family in traces.families
        if place.area == "aside":
            return any(f"{{{family}}}" in rest for family in traces.families) or traces.owner in rest
        if place.area == "traffic":
            return place.kind in "mqh" and rest.partition(":")[2] == f"t:{traces.owner}"
        if place.area == "limits":
            return place.beginning == keys.quotas(traces.owner).encode()
        return not place.area and (await self._is_owned(name, place.kind, rest))

    async def entries(self, name: bytes, place: KeyPlace) -> AsyncIterator[Sequence[Element]]:
        """Yield the tenant's entries of a key that tenants share, page by page."""
        is_own = self._entry_rule(name, place)
        if is_own is not None:
            count = _LARGE_ELEMENTS if place.area == "flush" else ELEMENTS
            async for page in read_pages(self._store, name, count):
                yield [element for element in page.elements if is_own(element)]

    def _entry_rule(self, name: bytes, place: KeyPlace) -> Callable[[Element], bool] | None:
        """Return what tells whether an entry of a shared key is the tenant's; None for other keys."""
        owner, everybodys = self._traces.owner, keys.everybodys_index()
        if name in (everybodys.encode(), keys.deleted_from(everybodys).encode()):
            return lambda element: element.place[:FAMILY_CHARACTERS].decode() in self._traces.families
        match place.area, place.kind:
            case "flush" | "requests", "s" | "d":
                return lambda element: self._is_own_entry(fields_of(element))
            case "flush", "o":
                return lambda element: self._is_own_note(element.value)
            case "traffic", "n":
                return lambda element: place.rest == b"t" and element.place == owner.encode()
            case ("", "accounts") | ("events", "r"):
                beginning = f"{owner}:" if place.area else f"{owner} "
                return lambda element: element.place.startswith(beginning.encode())
        return None

    async def _is_owned(self, name: bytes, kind: str, rest: str) -> bool:
        """Return whether a key that has no slot in common with others is the tenant's."""
        traces, owned = self._traces, False
        if kind in _OWN_KINDS:
            owned = rest == traces.owner
        elif kind == "d":
            owned = rest == f"{{{keys.owner_index(traces.owner)}}}"
        elif kind in ("n", "o"):
            value: bytes = await self._store.call("GET", name) or b""
            owned = value[:FAMILY_CHARACTERS].decode(errors="replace") in traces.families
        elif kind == "own":
            owned = (await self._store.call("GET", name) or b"") == traces.owner.encode()
        elif kind == "cv":
            tenant: bytes = await self._store.call("HGET", name, "tenant") or b"-"
            owned = name.decode() in traces.api_keys or tenant.decode() in traces.tenants
        return owned

    def _is_own_note(self, value: bytes) -> bool:
        if value.startswith(MARK):
            return key_id_of(value)[0] == self._scope
        return any(tenant.encode() in value for tenant in self._traces.tenants)

    def _is_own_entry(self, fields: Mapping[bytes, bytes]) -> bool:
        if b"o" in fields:  # of the log of requests
            return fields[b"o"] == self._traces.owner.encode()
        text = {name: fields.get(name, b"").decode(errors="replace") for name in (b"owner", b"tenant", b"conversation")}
        own = text[b"conversation"][:FAMILY_CHARACTERS] in self._traces.families
        return own or text[b"owner"] == self._traces.owner or text[b"tenant"] in self._traces.tenants


def fields_of(element: Element) -> Mapping[bytes, bytes]:
    """Return the fields of an entry of a stream."""
    return dict(zip(element.fields[::2], element.fields[1::2], strict=True))
