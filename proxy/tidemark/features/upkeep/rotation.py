"""Seals a store anew while it is in use.

That is what is still plain, and what an old key of a tenant has sealed.

``tidemark store rotate`` runs it, and ``tidemark doctor`` lets it count. It may be interrupted at any time: the next
run finds what is left. Entries of streams are not changed, since they leave by themselves. A tenant's old keys stay:
they open these entries, daily files, and exports of before.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass

from tidemark.core.errors import EncryptionKeyLost, RecordUnreadable, StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.store import keys
from tidemark.store.codec import MOVED, Codec
from tidemark.store.elements import Element, read_pages
from tidemark.store.encryption.cipher import key_id_of
from tidemark.store.encryption.keyring import LOOK_SECONDS, MARK, KeyRing
from tidemark.store.places import FAMILY, KeyPlace, place_of
from tidemark.store.scripts import lua
from tidemark.store.whole_store import KeyScan, WholeStore

LEASE_SECONDS = 60
"""How long the lease of a run lasts that says nothing more; each page renews it."""
_DIGEST = 16
_SUMMARIES = frozenset({"s", "w", "z"})
_TEXTS = frozenset({b"model", b"name", b"sender"})
_RESEAL, _LEASE = lua(__file__, "upkeep_reseal"), lua(__file__, "upkeep_lease")


@frozen
class Sealing:
    """How one element is sealed."""

    place: tuple[str | bytes, ...]
    prefix: bytes = b""
    """What stands unsealed in front of it."""
    is_text: bool = False


@dataclass(slots=True)
class Rotated:
    """How far a run is. Mutable: all of it."""

    keys: int = 0
    sealed: int = 0
    """Values that were plain."""
    resealed: int = 0
    """Values of an old key."""
    rewrapped: int = 0
    """Tenants whose keys the first master key wraps now, or that got a new one."""
    queued: int = 0
    """Plain entries of queues, which stay so until they leave."""
    unchanged: int = 0
    """Values that changed meanwhile, or that nobody can open: they stay as they are. Also keys that do not unwrap."""


class StoreRotation:
    """Seals a store anew. Mutable: how far it is, the owners of families and conversations, and its lease.

    :param codec: has the cipher of ``ring``
    """

    def __init__(self, store: WholeStore, codec: Codec, ring: KeyRing) -> None:
        self._store = store
        self._codec = codec
        self._ring = ring
        self._token = uuid.uuid4().hex
        self._owners: dict[str, str] = {}
        self._api_owners: dict[str, str] = {}
        self.progress = Rotated()

    async def run(self, *, renew: bool = False) -> AsyncGenerator[int, None]:
        """Yield the number of keys of each page that is done.

        :param renew: give each tenant a new key, which seals from then on
        :raises StoreUnavailable: somebody else does the same now, or a server does not answer
        """
        await self._renew_lease()
        try:
            for scope in await asyncio.to_thread(lambda: list(self._ring.source.scopes())):
                try:
                    self.progress.rewrapped += await asyncio.to_thread(self._ring.rewrap, scope, renew=renew)
                except EncryptionKeyLost:
                    self.progress.unchanged += 1
                await self._renew_lease()
            if renew:
                await asyncio.sleep(2 * LOOK_SECONDS)  # other processes seal with the new keys from then on
            await self._note_kept()
            async for count in self._seal_all():
                await self._renew_lease()
                yield count
        finally:
            await self._store.call("EVAL", _LEASE, 1, keys.ROTATION, self._token, 0)

    async def survey(self, most: int) -> tuple[int, int]:
        """Return how many values of the first keys are sealed, and how many are plain, and change nothing.

        :param most: keys that are looked at
        """
        looked_at, sealed, plain = 0, 0, 0
        async for names in KeyScan(self._store).pages():
            for name in names:
                place = place_of(name)
                async for element in self._sealable(name, place):
                    is_sealed = self._value(element[0], element[1]).startswith(MARK)
                    sealed, plain = sealed + is_sealed, plain + (not is_sealed)
            looked_at += len(names)
            if looked_at >= most:
                break
        return sealed, plain

    async def _seal_all(self) -> AsyncIterator[int]:
        async for names in KeyScan(self._store).pages():
            for name in names:
                place = place_of(name)
                if place is not None and place.area == "flush" and place.kind in ("s", "d"):
                    await self._note_queued(name)
                async for element, sealing in self._sealable(name, place):
                    if place is not None:
                        await self._seal(name, place, element, sealing)
            self.progress.keys += len(names)
            yield len(names)

    async def _sealable(self, name: bytes, place: KeyPlace | None) -> AsyncIterator[tuple[Element, Sealing]]:
        if place is None or sealing_of(place, Element(b"head", b"x" * 40)) is None:
            return
        async for page in read_pages(self._store, name):
            for element in page.elements:
                sealing = sealing_of(place, element)
                if sealing is not None:
                    yield element, sealing

    async def _note_queued(self, name: bytes) -> None:
        """Count the plain entries of a queue: an entry of a stream cannot be changed."""
        async for page in read_pages(self._store, name):
            for element in page.elements:
                body = dict(zip(element.fields[::2], element.fields[1::2], strict=True)).get(b"body", MARK)
                self.progress.queued += not body.startswith(MARK)

    def _value(self, element: Element, sealing: Sealing) -> bytes:
        """Return the sealed part of an element; of a text the bytes that it stands for, if it is sealed."""
        value = element.value[len(sealing.prefix) :]
        return base64.b64decode(value) if sealing.is_text and value.startswith(_TEXT_MARK) else value

    async def _seal(self, name: bytes, place: KeyPlace, element: Element, sealing: Sealing) -> None:
        value = self._value(element, sealing)
        is_plain = not value.startswith(MARK)
        try:
            if not is_plain and not self._is_old(value):
                return
            owner = await self._owner_of(name, place)
            fresh = None if owner is None else await asyncio.to_thread(self._sealed_anew, element, sealing, owner)
        except (RecordUnreadable, EncryptionKeyLost):
            fresh = None
        if fresh is None:
            self.progress.unchanged += 1
            return
        arguments = (element.place, element.value, fresh)
        done = int(await self._store.call_large("EVAL", _RESEAL, 1, name, *arguments))
        self.progress.unchanged += not done
        self.progress.sealed += done and is_plain
        self.progress.resealed += done and not is_plain

    def _sealed_anew(self, element: Element, sealing: Sealing, owner: str) -> bytes:
        if sealing.is_text:
            text = self._codec.open_text(element.value.decode(), *sealing.place)
            return self._codec.seal_text(text, owner, *sealing.place).encode()
        plain = self._codec.open(element.value[len(sealing.prefix) :], *sealing.place)
        return sealing.prefix + self._codec.seal(plain, owner, *sealing.place)

    def _is_old(self, value: bytes) -> bool:
        scope, key = key_id_of(value)
        tenant = self._ring.find(scope)
        return tenant is not None and not tenant.header.endswith(key)

    async def _owner_of(self, name: bytes, place: KeyPlace) -> str | None:
        """Return whose a key is; empty if it is no tenant's, None if nobody knows."""
        if place.area == FAMILY:
            if place.family not in self._owners:
                await self._note_family(place.family)
            return self._owners.get(place.family)
        if place.area == "models":
            return ""
        return self._api_owners.get(name.decode()) if place.kind == "cv" else place.rest.decode()

    async def _note_family(self, family: str) -> None:
        """Find the owner of a family in one of its records."""
        cursor = "0"
        while True:
            pattern = f"{keys.family_prefix(family)}:c:*"
            cursor, names = await self._store.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            for name in names:
                owner, tenant = await self._store.call("HMGET", name, "owner", "tenant")
                if owner or tenant:
                    self._owners[family] = (owner or tenant).decode()
                    return
            cursor = str(int(cursor))
            if cursor == "0":
                return

    async def _note_kept(self) -> None:
        """Learn the owners of families and of conversations of the Conversations API."""
        async for names in KeyScan(self._store).pages():
            for name in names:
                place = place_of(name)
                if place is not None and not place.area and place.kind == "ci":
                    owner = place.rest.decode()
                    for identifier in await self._store.call("SMEMBERS", name):
                        self._api_owners[keys.kept_conversation(owner, identifier.decode(errors="surrogateescape"))] = (
                            owner
                        )
                elif place is not None and place.area == FAMILY and place.kind == "c":
                    stored, tenant = await self._store.call("HMGET", name, "owner", "tenant")
                    if stored or tenant:
                        self._owners[place.family] = (stored or tenant).decode()

    async def _renew_lease(self) -> None:
        if not await self._store.call("EVAL", _LEASE, 1, keys.ROTATION, self._token, LEASE_SECONDS):
            raise StoreUnavailable("Another tidemark store rotate is under way. Wait for its end.")


def sealing_of(place: KeyPlace, element: Element) -> Sealing | None:
    """Return how an element of a key is sealed; None if it is not, or leaves by itself soon."""
    if place.area == FAMILY:
        return _of_family(place, element)
    if place.area == "models" and place.kind in ("o", "r", "k", "s", "a"):
        return Sealing(tuple(place.sealed_as(element.place)))
    if not place.area and place.kind in ("k", "w"):
        return Sealing(tuple(place.sealed_as(element.place)))
    if not place.area and place.kind == "cv" and (element.place == b"head" or element.place.isdigit()):
        return Sealing((f"tm:cv:{place.rest.decode()}", "head" if element.place == b"head" else "item"))
    return None


def _of_family(place: KeyPlace, element: Element) -> Sealing | None:
    family, value = place.family, element.value
    if value == MOVED or value[_DIGEST:] == MOVED:
        return None
    simple: Mapping[str, tuple[str | bytes, ...]] = {
        "m": ("m", family),
        "v": ("m", family),
        "y": ("y", family, element.place),
        "o": ("o", family, element.place),
        "k": ("k", family + place.rest.decode(errors="replace")),
    }
    if place.kind in _SUMMARIES:
        return Sealing(("s", family))
    if place.kind == "t":
        return Sealing(("t", family, value[:_DIGEST]), value[:_DIGEST])
    if place.kind == "c":
        is_text = element.place in _TEXTS or element.place == b"head"
        return Sealing(("c", family, element.place), is_text=True) if is_text else None
    return Sealing(simple[place.kind]) if place.kind in simple else None


_TEXT_MARK = b"AOUB"
"""How a sealed text begins in base64."""
