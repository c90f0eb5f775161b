"""Stores what was learned of providers' tokenizers, by credential: the adapter of ``CalibrationStore``.

If a request's model is calibrated, its calibration is read beside ``recall`` and written beside ``record``. A write
takes effect only if the store still has the value from which the new one was learned. Otherwise the new value is
learned again, from the stored one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.core.bounded import BoundedCache
from tidemark.core.errors import RecordUnreadable, StoreError, StoreUnavailable
from tidemark.core.planning.calibration import ANY_TOOLS, UNCALIBRATED, Calibration, CalibrationEntry, CalibrationKey
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask
from tidemark.store.models import MOST_MODELS
from tidemark.store.scripts import lua

MOST_TOOL_SETS = 256
"""Of one credential, over all models; further tool sets use their model's own calibration."""
LEARN_SECONDS = 1.0
"""The last byte of the response waits for it, as for ``record``."""
TRIES = 16
"""Replies that may end at the same instant and all be learned from; of more, some may be lost."""
_CACHED = 1024
_KEEP = lua(__file__, "calibrate")


class RedisCalibrations:
    """Calibrations in Redis. Its state is a bounded cache of the last ones, for outages.

    :param ttl_seconds: how long a calibration is stored that no reply renews; None for no limit
    """

    def __init__(
        self, ask: Ask, codec: Codec, *, ttl_seconds: float | None, learn_timeout_seconds: float = LEARN_SECONDS
    ) -> None:
        self._ask = ask
        self._codec = codec
        self._ttl = max(1, math.ceil(ttl_seconds)) if ttl_seconds else 0
        self._learn_seconds = learn_timeout_seconds
        self._newest: BoundedCache[CalibrationKey, Calibration] = BoundedCache(_CACHED)

    async def calibration(self, key: CalibrationKey) -> Calibration:
        try:
            own, overall = self._unpacked(key, await self._read(key, briefly=True))
        except StoreError:
            return self._newest.get(key, UNCALIBRATED)
        calibration = own or overall or UNCALIBRATED
        self._newest.put(key, calibration)
        return calibration

    async def learn(self, key: CalibrationKey, counted: int, reported: int, now: float) -> None:
        try:
            async with asyncio.timeout(self._learn_seconds):
                after = await self._learn(key, counted, reported, now)
        except (StoreError, TimeoutError):
            after = self._newest.get(key, UNCALIBRATED).learned(counted, reported, now)
        self._newest.put(key, after)

    async def _learn(self, key: CalibrationKey, counted: int, reported: int, now: float) -> Calibration:
        """Store what one more reply teaches, and return the tool set's calibration after it."""
        await self._codec.prepare(key.owner)
        before = await self._read(key)
        for _ in range(TRIES):
            stored = self._unpacked(key, before)
            own, overall = [(entry or UNCALIBRATED).learned(counted, reported, now) for entry in stored]
            at, fields = keys.calibrations(key.owner), _fields(key)
            of_set = (fields[0], before[0] or "", self._pack(own, key.owner, at, fields[0]))
            of_model = (fields[1], before[1] or "", self._pack(overall, key.owner, at, fields[1]))
            arguments = (MOST_TOOL_SETS, self._ttl, *of_set, *of_model)
            before = await self._ask("EVAL", _KEEP, 1, at, *arguments)
            if not before:
                newest_at = keys.models_part("k")
                newest = (MOST_MODELS, 0, key.model, "*", self._pack(overall, "", newest_at, key.model))
                await self._ask("EVAL", _KEEP, 1, newest_at, *newest)
                return own
        raise StoreUnavailable("Too many replies end at once.")

    async def readings(self, owner: str | None) -> Mapping[str, Sequence[CalibrationEntry]]:
        """Return an owner's calibrations by model id, the model's own first; for None the newest of any credential.

        :raises StoreUnavailable: the store did not answer in time
        """
        key = keys.models_part("k") if owner is None else keys.calibrations(owner)
        entries: dict[str, list[CalibrationEntry]] = {}
        for field, packed in sorted((await self._ask("HGETALL", key)).items()):
            model, _, rest = field.decode().partition("\0")
            tools = rest.partition("\0")[2] if rest else ANY_TOOLS
            if calibration := self._unpack(packed, key, field):
                entries.setdefault(model, []).append(CalibrationEntry(tools, calibration))
        return {model: sorted(own, key=lambda entry: entry.tools != ANY_TOOLS) for model, own in entries.items()}

    async def _read(self, key: CalibrationKey, *, briefly: bool = False) -> Sequence[bytes | None]:
        """Return the stored calibrations of the tool set and of its model."""
        packed: Sequence[bytes | None] = await self._ask(
            "HMGET", keys.calibrations(key.owner), *_fields(key), briefly=briefly
        )
        return packed

    def _unpacked(self, key: CalibrationKey, packed: Sequence[bytes | None]) -> Sequence[Calibration | None]:
        at = keys.calibrations(key.owner)
        return [self._unpack(entry, at, field) for entry, field in zip(packed, _fields(key), strict=True)]

    def _pack(self, calibration: Calibration, owner: str, at: str, field: str) -> bytes:
        content = {
            "counted": calibration.local_tokens,
            "told": calibration.provider_tokens,
            "replies": calibration.replies,
            "updated_at": calibration.updated_at,
        }
        return self._codec.pack_json(content, owner, at, field)

    def _unpack(self, packed: bytes | None, at: str, field: str | bytes) -> Calibration | None:
        """Return None for a record that another version wrote and this one cannot read."""
        try:
            content = None if packed is None else self._codec.unpack_json(packed, at, field)
            if content is None:
                return None
            return Calibration(content["counted"], content["told"], content["replies"], content["updated_at"])
        except (RecordUnreadable, KeyError, TypeError):
            return None


def _any(key: CalibrationKey) -> CalibrationKey:
    return replace(key, tools=ANY_TOOLS)


def _fields(key: CalibrationKey) -> tuple[str, str]:
    """Return the fields of the tool set's calibration, and of its model's."""
    return _field(key), _field(_any(key))


def _field(key: CalibrationKey) -> str:
    return f"{key.model}\0{key.upstream}\0{key.tools}"
