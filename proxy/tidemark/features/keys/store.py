"""Stores the keys of the application, without the keys themselves.

They stand beside the registry's records and share its version, which every worker polls anyway.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import RecordUnreadable, StoreUnavailable
from tidemark.core.grants import ApplicationKey, Quota
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask
from tidemark.store.scripts import lua

TRIES = 16
"""Changes that may come at the same instant and all take effect."""
ANY_VERSION = "-"
_CHANGE = lua(__file__, "keys")


class RedisKeys:
    """The keys in Redis. All state is the server's.

    If a docstring does not say otherwise, a method raises ``StoreUnavailable`` when the store did not answer in time.
    """

    def __init__(self, ask: Ask, codec: Codec) -> None:
        self._ask = ask
        self._codec = codec

    async def all(self) -> Sequence[ApplicationKey]:
        """Return all keys, the oldest first; one that this version cannot read is left out, and so is refused."""
        records: Mapping[bytes, bytes] = await self._ask("HGETALL", keys.models_part("a"))
        stored = [key for name, record in records.items() if (key := self._read(record, name)) is not None]
        return sorted(stored, key=lambda key: (key.created, key.id))

    async def find(self, identifier: str) -> ApplicationKey | None:
        """Return one key; None if there is none of this id that can be read."""
        record: bytes | None = await self._ask("HGET", keys.models_part("a"), identifier)
        return None if record is None else self._read(record, identifier)

    async def add(self, make: Callable[[Sequence[ApplicationKey]], ApplicationKey]) -> ApplicationKey:
        """Store a new key.

        :param make: returns it for those that there are; called again if somebody was faster. What it raises leaves
            everything as it is
        """
        for _ in range(TRIES):
            version: bytes | None = await self._ask("GET", keys.models_part("v"))
            key = make(await self.all())
            if await self._put(key.id, b"", self._pack(key), (version or b"").decode()):
                return key
        raise _too_many()

    async def change(
        self, identifier: str, change: Callable[[ApplicationKey], ApplicationKey | None]
    ) -> ApplicationKey | None:
        """Change a key, on top of what others have changed meanwhile.

        :param change: returns the new record for the stored one, or None to remove it; called again if somebody was
            faster
        :returns: the record before it was removed, or after it was changed; None if there is none
        """
        for _ in range(TRIES):
            before: bytes | None = await self._ask("HGET", keys.models_part("a"), identifier)
            stored = None if before is None else self._read(before, identifier)
            if before is None or stored is None:
                return None
            after = change(stored)
            if await self._put(identifier, before, b"" if after is None else self._pack(after), ANY_VERSION):
                return after or stored
        raise _too_many()

    async def _put(self, identifier: str, before: bytes, after: bytes, version: str) -> bool:
        arguments = (identifier, before, after, uuid.uuid4().hex, version)
        return bool(await self._ask("EVAL", _CHANGE, 1, keys.MODELS, *arguments))

    def _pack(self, key: ApplicationKey) -> bytes:
        fields: dict[str, JsonValue] = asdict(key)
        digests = {name: getattr(key, name).hex() for name in ("digest", "former_digest")}
        content = {**fields, **digests, "models": [*key.models], "quota": asdict(key.quota)}
        return self._codec.pack_json(content, "", keys.models_part("a"), key.id)

    def _read(self, packed: bytes, identifier: str | bytes) -> ApplicationKey | None:
        """Return a record, or None for one that another version wrote and this one cannot read."""
        try:
            content = self._codec.unpack_json(packed, keys.models_part("a"), identifier)
            return read_key(content) if isinstance(content, dict) else None
        except (RecordUnreadable, ValueError, TypeError, KeyError):
            return None


def read_key(content: Mapping[str, JsonValue]) -> ApplicationKey:
    """Return the key of a record.

    :raises ValueError, TypeError, KeyError: it is none
    """
    fields: dict[str, Any] = dict(content)
    digest, former = (bytes.fromhex(str(fields.pop(name))) for name in ("digest", "former_digest"))
    models, quota = fields.pop("models"), fields.pop("quota")
    if not isinstance(models, list) or not isinstance(quota, dict):
        raise TypeError("it is no key's record")
    return ApplicationKey(
        digest=digest,
        former_digest=former,
        models=tuple(map(str, models)),
        quota=Quota(**quota),
        **fields,
    )


def _too_many() -> StoreUnavailable:
    return StoreUnavailable("Too many requests change keys at once. Nothing was changed; send it again.")
