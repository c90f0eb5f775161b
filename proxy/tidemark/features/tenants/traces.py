"""Finds everything that a store holds of one tenant, and deletes it.

A family of conversations belongs to one tenant, since the chain's seed holds the tenant. So the records of
conversations say whose their families are, and the name of a key says the rest (``store/keys.py``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.core.conversation.prefix import FAMILY_CHARACTERS, split_id
from tidemark.store import keys
from tidemark.store.encryption.cipher import key_id_of
from tidemark.store.encryption.keyring import MARK, scope_of
from tidemark.store.places import FAMILY, KeyPlace, place_of
from tidemark.store.whole_store import PAGE, KeyScan, WholeStore

MARK_SECONDS = 600
"""How long it is remembered that a conversation was forgotten, as by ``lua/forget.lua``."""
_REWRITE = Path(__file__).with_name("lua").joinpath("rewrite_stream.lua").read_text("utf-8")
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


@dataclass(slots=True)
class Deleted:
    """How much was deleted. Mutable: all of it."""

    keys: int = 0
    entries: int = 0
    """Entries of keys that tenants share: lists of all conversations, the flush queue, live events."""
    plain: int = 0
    """Conversations with messages from before the encryption: copies of them can be read."""


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
            elif not place.area and place.kind in _OWN_KINDS and place.rest != b"all":
                owners.setdefault(place.rest.decode(errors="replace"), set())
    return owners


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


class TraceEraser:
    """Deletes the traces of one tenant. Mutable: what was deleted."""

    def __init__(self, store: WholeStore, traces: Traces) -> None:
        self._store = store
        self._traces = traces
        self._scope = scope_of(traces.owner)
        self.deleted = Deleted()

    async def mark(self) -> None:
        """Mark the conversations as forgotten, so that no turn or summary that is under way is stored after this."""
        for conversation in self._traces.conversations:
            family, own = split_id(conversation)
            at = f"{keys.family_prefix(family)}:x:{own}"
            await self._store.call("SET", at, repr(time.time()), "EX", MARK_SECONDS)

    async def erase(self) -> int:
        """Go through the store once, delete what belongs to the tenant, and return how much that was."""
        before = self.deleted.keys + self.deleted.entries
        async for names in KeyScan(self._store).pages():
            for name in dict.fromkeys(names):
                place = place_of(name)
                if place is None:
                    continue
                if await self._belongs(name, place):
                    await self._note_plain(name, place)
                    self.deleted.keys += int(await self._store.call("UNLINK", name))
                else:
                    self.deleted.entries += await self._erase_entries(name, place)
        return self.deleted.keys + self.deleted.entries - before

    async def _belongs(self, name: bytes, place: KeyPlace) -> bool:
        """Return whether a whole key is the tenant's."""
        traces, rest = self._traces, place.rest.decode(errors="replace")
        if place.area == FAMILY:
            return place.kind != "x" and place.family in traces.families
        if place.area == "aside":
            return any(f"{{{family}}}" in rest for family in traces.families) or traces.owner in rest
        if place.area == "limits":
            return place.beginning == keys.quotas(traces.owner).encode()
        return not place.area and (await self._is_owned(name, place.kind, rest))

    async def _note_plain(self, name: bytes, place: KeyPlace) -> None:
        """Count a conversation whose oldest message is not sealed."""
        if place.area == FAMILY and place.kind == "m":
            oldest: bytes = await self._store.call("LINDEX", name, 0) or MARK
            self.deleted.plain += not oldest.startswith(MARK)

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

    async def _erase_entries(self, name: bytes, place: KeyPlace) -> int:
        """Delete the tenant's entries of a key that tenants share, and return how many they were."""
        owner, erased = self._traces.owner, 0
        everybodys = keys.everybodys_index()
        if name in (everybodys.encode(), keys.deleted_from(everybodys).encode()):
            erased = await self._erase_members(name)
        elif name == keys.ACCOUNTS.encode():
            erased = await self._erase_fields(name, f"{owner} *", any_value=True)
        elif place.area == "flush" and place.kind in ("s", "d"):
            erased = await self._erase_from_stream(name)
        elif place.area == "flush" and place.kind == "o":
            erased = await self._erase_fields(name, "*", any_value=False)
        elif place.area == "events" and place.kind == "r":
            erased = await self._erase_fields(name, f"{owner}:*", any_value=True)
        elif place.area == "events" and place.kind == "s":  # batches of ten minutes, with events of several tenants
            erased = int(await self._store.call("XTRIM", name, "MAXLEN", 0))
        return erased

    async def _erase_members(self, name: bytes) -> int:
        erased, cursor = 0, "0"
        while True:
            answer = await self._store.call("ZSCAN", name, cursor, "COUNT", PAGE)
            cursor, flat = str(int(answer[0])), answer[1]
            own = [member for member in flat[::2] if member[:FAMILY_CHARACTERS].decode() in self._traces.families]
            erased += int(await self._store.call("ZREM", name, *own)) if own else 0
            if cursor == "0":
                return erased

    async def _erase_fields(self, name: bytes, pattern: str, *, any_value: bool) -> int:
        """Delete fields of a hash.

        :param any_value: also fields whose values do not name the tenant
        """
        erased, cursor = 0, "0"
        while True:
            answer = await self._store.call("HSCAN", name, cursor, "MATCH", pattern, "COUNT", PAGE)
            cursor, flat = str(int(answer[0])), answer[1]
            pairs = zip(flat[::2], flat[1::2], strict=True)
            own = [place for place, value in pairs if any_value or self._is_own(value)]
            erased += int(await self._store.call("HDEL", name, *own)) if own else 0
            if cursor == "0":
                return erased

    def _is_own(self, value: bytes) -> bool:
        if value.startswith(MARK):
            return key_id_of(value)[0] == self._scope
        return any(tenant.encode() in value for tenant in self._traces.tenants)

    async def _erase_from_stream(self, name: bytes) -> int:
        """Delete entries of a flush queue, or of its dead letters, with their bytes in its count."""
        erased, first, counts = 0, "-", name[:-1] + b"n"
        while page := await self._store.call("XRANGE", name, first, "+", "COUNT", 64):
            for entry, flat in page:
                fields = dict(zip(flat[::2], flat[1::2], strict=True))
                if self._is_own_entry(fields) and await self._store.call("XDEL", name, entry):
                    size = len(fields.get(b"body", b""))
                    await self._store.call("HINCRBY", counts, f"bytes{name[-1:].decode()}", -size)
                    erased += 1
            first = f"({page[-1][0].decode()}"
        if erased:
            await self._store.call("EVAL", _REWRITE, 1, name)
        return erased

    def _is_own_entry(self, fields: Mapping[bytes, bytes]) -> bool:
        text = {name: fields.get(name, b"").decode(errors="replace") for name in (b"owner", b"tenant", b"conversation")}
        own = text[b"conversation"][:FAMILY_CHARACTERS] in self._traces.families
        return own or text[b"owner"] == self._traces.owner or text[b"tenant"] in self._traces.tenants
