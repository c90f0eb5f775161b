"""The keys of the tenants, unwrapped, for as long as a process uses them.

``cipher.py`` asks for a key at every value. A process reads a tenant's record when it first needs it, and forgets all
keys when the source's version changes: then one was erased or replaced, and the next value asks the source again.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tidemark.codings.sealing import KEY_BYTES, Box, SealBroken
from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import digest_of, framed
from tidemark.core.errors import EncryptionKeyLost
from tidemark.core.frozen import frozen
from tidemark.store.encryption.masters import MasterKey
from tidemark.store.encryption.sources import KeySource

LOOK_SECONDS = 0.4
"""Between two looks at the source's version: an erased key is forgotten within this time everywhere."""
BLIND_SECONDS = 60.0
"""How long keys stay in use while nobody can say whether they were erased."""
MOST_TENANTS = 20_000
"""Tenants whose keys a process has at once, a kilobyte each."""
SERVER = ""
"""The owner of what belongs to no tenant, such as the settings of models."""
MARK = b"\x00\xe5\x01"
"""Begins every sealed value, and no plain one. Its last byte is the version of the form."""
ID_BYTES, SCOPE_BYTES = 4, 16
_PURPOSE = b"tidemark tenant key 1"
_OWNER = re.compile(r"[0-9a-f]{32}")
_NO_MASTER = (
    "The key of this tenant is wrapped by a master key that is not configured (its id is {id}). Nothing of the tenant "
    "is read or written. Put that key back into TIDEMARK_ENCRYPTION_KEY, behind the one that writes."
)
_BROKEN = "The key of this tenant is damaged. Nothing of the tenant is read or written. Restore its file of keys."


class WrappedKey(msgspec.Struct, frozen=True):
    """One key of a tenant, as it is stored."""

    id: str
    master: str
    wrapped: str
    at: float


class KeyRecord(msgspec.Struct, frozen=True):
    """What is stored of a tenant's keys. The first one seals, all of them open."""

    owner: str
    keys: tuple[WrappedKey, ...]
    digests: WrappedKey
    """Nothing uses it but its time, when the tenant's first key was made; workers of earlier versions read it."""
    version: int = 1


@frozen
class TenantKeys:
    """The keys of one tenant."""

    header: bytes
    """What begins each value that is sealed from now on."""
    seal: Callable[[bytes, bytes], bytes]
    """``Box.seal`` of the newest key."""
    boxes: Mapping[bytes, Box]
    """By their ids."""


def scope_of(owner: str) -> bytes:
    """Return 16 bytes that name an owner in front of what is sealed for it."""
    return bytes.fromhex(owner) if _OWNER.fullmatch(owner) else digest_of(b"tidemark owner", owner.encode())


class KeyRing:
    """Makes, wraps and unwraps the keys of tenants. Threads may share it.

    Mutable: the unwrapped keys, how often they were forgotten, the version of the source that they are from, and the
    thread that looks at it.

    :param masters: the first one wraps, all of them unwrap
    """

    def __init__(self, masters: Sequence[MasterKey], source: KeySource, clock: Callable[[], float] = time.time) -> None:
        self.masters = masters
        self.source = source
        self._clock = clock
        self._by_id = {master.id: master for master in masters}
        self._keys: BoundedCache[bytes, TenantKeys] = BoundedCache(MOST_TENANTS)
        self.by_owner: BoundedCache[str, TenantKeys] = BoundedCache(MOST_TENANTS)
        """The same keys by owner, for every value that is sealed."""
        self._generation = 0
        self._lock = threading.Lock()
        self._version: str | None = None
        self._looked_at = time.monotonic()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def of(self, owner: str) -> TenantKeys:
        """Return the keys of an owner, made now if it has none.

        :raises EncryptionKeyLost: they cannot be had
        """
        scope = scope_of(owner)
        cached, generation = self._keys.get(scope), self._generation
        if cached is not None:
            return cached
        record = self.source.read(scope.hex())
        if record is None:
            fresh = KeyRecord(owner, (self._new_key(scope),), self._new_key(scope))
            record = self.source.create(scope.hex(), self._packed(fresh))
        return self._remember(scope, record, generation)

    def find(self, scope: bytes, *, anew: bool = False) -> TenantKeys | None:
        """Return the keys of a scope; None if it has none, because they were erased.

        :param anew: ask the source, whatever is cached
        :raises EncryptionKeyLost: they cannot be had
        """
        cached, generation = self._keys.get(scope), self._generation
        if cached is not None and not anew:
            return cached
        record = self.source.read(scope.hex())
        return None if record is None else self._remember(scope, record, generation)

    def made_at(self, owner: str) -> float | None:
        """Return when an owner's first key was made; None if it has none, or its record is damaged."""
        packed = self.source.read(scope_of(owner).hex())
        with contextlib.suppress(EncryptionKeyLost):
            return None if packed is None else self._read(packed).digests.at
        return None

    def erase(self, owner: str) -> Sequence[str]:
        """Delete the keys of an owner for good, and return their ids; none if it has none."""
        scope = scope_of(owner)
        record = self.source.read(scope.hex())
        ids: list[str] = []
        with contextlib.suppress(EncryptionKeyLost):  # a damaged record is erased too
            ids = [key.id for key in self._read(record).keys] if record is not None else []
        self.source.erase(scope.hex())
        self.forget()
        return ids

    def rewrap(self, scope: str, *, renew: bool = False) -> bool:
        """Wrap a tenant's keys by the first master key; return whether anything changed.

        :param renew: make a new key too, which seals from now on
        :raises EncryptionKeyLost: a key cannot be unwrapped, or the source does not answer
        """
        while (before := self.source.read(scope)) is not None:
            record, raw_scope = self._read(before), bytes.fromhex(scope)
            digests, *keys = [self._rewrapped(raw_scope, key) for key in (record.digests, *record.keys)]
            keys = [self._new_key(raw_scope), *keys] if renew else keys
            after = KeyRecord(record.owner, tuple(keys), digests)
            if after == record:
                return False
            if self.source.replace(scope, self._packed(after), before):
                self.forget()
                return True
        return False

    def lost(self, most: int | None = None) -> int:
        """Return how many of the first tenants have keys that no master key unwraps.

        :param most: tenants that are looked at; None for all
        :raises EncryptionKeyLost: the source does not answer
        """
        self.source.version()
        lost = 0
        for scope in itertools.islice(self.source.scopes(), most):
            try:
                self.find(bytes.fromhex(scope))
            except EncryptionKeyLost:
                lost += 1
        return lost

    def owners(self) -> Mapping[str, str]:
        """Return the owners of all keys by their scopes; a record that cannot be read has no owner's name."""
        owners: dict[str, str] = {}
        for scope in self.source.scopes():
            record = self.source.read(scope)
            try:
                owners[scope] = "" if record is None else self._read(record).owner
            except EncryptionKeyLost:
                owners[scope] = ""
        return owners

    def forget(self) -> None:
        """Forget all keys, so that the next value asks the source."""
        with self._lock:
            self._generation += 1
            self._keys.clear()
            self.by_owner.clear()

    def start(self) -> None:
        """Look at the source's version from now on, in a thread."""
        self._look()
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="encryption-keys", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _follow(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        try:
            version = self.source.version()
        except EncryptionKeyLost:
            if time.monotonic() - self._looked_at > BLIND_SECONDS:
                self.forget()
            return
        self._looked_at = time.monotonic()
        if version != self._version:
            self._version = version
            self.forget()

    def _remember(self, scope: bytes, packed: bytes, generation: int) -> TenantKeys:
        record = self._read(packed)
        boxes = {bytes.fromhex(key.id): Box(self._unwrapped(scope, key)) for key in record.keys}
        newest = bytes.fromhex(record.keys[0].id)
        keys = TenantKeys(MARK + scope + newest, boxes[newest].seal, boxes)
        with self._lock:
            if generation == self._generation:  # otherwise it may have been erased since it was read
                self._keys.put(scope, keys)
                self.by_owner.put(record.owner, keys)
        return keys

    def _new_key(self, scope: bytes) -> WrappedKey:
        return self._wrapped(scope, os.urandom(ID_BYTES).hex(), os.urandom(KEY_BYTES), self._clock())

    def _wrapped(self, scope: bytes, key_id: str, secret: bytes, at: float) -> WrappedKey:
        master = self.masters[0]
        wrapped = master.box.seal(secret, framed(_PURPOSE, scope, key_id.encode()))
        return WrappedKey(key_id, master.id, base64.b64encode(wrapped).decode(), at)

    def _rewrapped(self, scope: bytes, key: WrappedKey) -> WrappedKey:
        is_done = key.master == self.masters[0].id
        return key if is_done else self._wrapped(scope, key.id, self._unwrapped(scope, key), key.at)

    def _unwrapped(self, scope: bytes, key: WrappedKey) -> bytes:
        master = self._by_id.get(key.master)
        if master is None:
            reason = f"no master key {key.master}, which wrapped the key of {scope.hex()}"
            raise EncryptionKeyLost(_NO_MASTER.format(id=key.master), internal=reason)
        try:
            return master.box.open(base64.b64decode(key.wrapped), framed(_PURPOSE, scope, key.id.encode()))
        except (SealBroken, ValueError) as error:
            raise EncryptionKeyLost(_BROKEN, internal=f"the key of {scope.hex()}: {error}") from error

    def _read(self, packed: bytes) -> KeyRecord:
        try:
            record = msgspec.json.decode(packed, type=KeyRecord)
        except msgspec.MsgspecError as error:
            raise EncryptionKeyLost(_BROKEN, internal=f"a tenant's record of keys: {error}") from error
        if not record.keys or record.version != 1:
            raise EncryptionKeyLost(_BROKEN, internal=f"a tenant's record of keys has version {record.version}")
        return record

    def _packed(self, record: KeyRecord) -> bytes:
        return msgspec.json.encode(record)

    def __repr__(self) -> str:
        return f"KeyRing({len(self._keys)} tenants)"
