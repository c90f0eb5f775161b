"""The adapter of ``CalibrationStore``: what was learned of providers' tokenizers, by credential.

Met twice on the road of a request whose model is calibrated: read beside ``recall``, written beside ``record``. What is
learned is written only upon what it was learned from; where another reply was faster, it is learned anew from that.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from proxy.core.errors import StoreError, StoreUnavailable
from proxy.core.planning.calibration import ANY_TOOLS, UNCALIBRATED, Calibration, CalibrationEntry, CalibrationKey
from proxy.store import keys
from proxy.store.models import MOST_MODELS, Ask

MOST_TOOL_SETS = 256
"""Of one credential, over all models; further ones go by their model's own calibration."""
LEARN_SECONDS = 1.0
"""The last byte of the response waits for it, as for ``record``."""
TRIES = 16
"""Of so many replies that end at the same instant each is learned from; of more, some may be lost."""
_REMEMBERED = 1024
_KEEP = (Path(__file__).with_name("lua") / "calibrate.lua").read_text("utf-8")


class RedisCalibrations:
    """Calibrations in Redis; the mutable state is a bounded memory of the last known, for when the store is gone.

    :param ttl_seconds: how long what no reply renews is kept; None keeps it for good
    """

    def __init__(self, ask: Ask, *, ttl_seconds: float | None, learn_timeout_seconds: float = LEARN_SECONDS) -> None:
        self._ask = ask
        self._ttl = max(1, math.ceil(ttl_seconds)) if ttl_seconds else 0
        self._learn_seconds = learn_timeout_seconds
        self._known: dict[CalibrationKey, Calibration] = {}

    async def calibration(self, key: CalibrationKey) -> Calibration:
        """Of a tool set, else of its model; the last one known where the store does not answer."""
        try:
            own, overall = map(_unpack, await self._held(key, briefly=True))
        except StoreError:
            return self._known.get(key, UNCALIBRATED)
        return self._remembered(key, own or overall or UNCALIBRATED)

    async def learn(self, key: CalibrationKey, counted: int, told: int, now: float) -> None:
        """Take in one more reply, for the tool set and for the model."""
        try:
            async with asyncio.timeout(self._learn_seconds):
                after = await self._learned(key, counted, told, now)
        except (StoreError, TimeoutError):
            after = self._known.get(key, UNCALIBRATED).learned(counted, told, now)
        self._remembered(key, after)

    async def _learned(self, key: CalibrationKey, counted: int, told: int, now: float) -> Calibration:
        """What is known of the tool set after one more reply; stored, upon what other replies have stored."""
        before = await self._held(key)
        for _ in range(TRIES):
            own, overall = ((_unpack(one) or UNCALIBRATED).learned(counted, told, now) for one in before)
            of_set = (_field(key), before[0] or "", _pack(own))
            of_model = (_field(_any(key)), before[1] or "", _pack(overall))
            kept = (MOST_TOOL_SETS, self._ttl, *of_set, *of_model)
            before = await self._ask("EVAL", _KEEP, 1, keys.calibrations(key.owner), *kept)
            if not before:
                newest = (MOST_MODELS, 0, key.model, "*", _pack(overall))
                await self._ask("EVAL", _KEEP, 1, keys.models_part("k"), *newest)
                return own
        raise StoreUnavailable("Too many replies end at once.")

    async def readings(self, owner: str | None) -> Mapping[str, Sequence[CalibrationEntry]]:
        """By model id, the calibration of the model first; for None the newest of anybody's."""
        key = keys.models_part("k") if owner is None else keys.calibrations(owner)
        found: dict[str, list[CalibrationEntry]] = {}
        for field, packed in sorted((await self._ask("HGETALL", key)).items()):
            model, _, rest = field.decode().partition("\0")
            tools = rest.partition("\0")[2] if rest else ANY_TOOLS
            if calibration := _unpack(packed):
                found.setdefault(model, []).append(CalibrationEntry(tools, calibration))
        return {model: sorted(own, key=lambda one: one.tools != ANY_TOOLS) for model, own in found.items()}

    async def _held(self, key: CalibrationKey, *, briefly: bool = False) -> Sequence[bytes | None]:
        """What is stored of the tool set and of its model."""
        fields = (_field(key), _field(_any(key)))
        found: Sequence[bytes | None] = await self._ask("HMGET", keys.calibrations(key.owner), *fields, briefly=briefly)
        return found

    def _remembered(self, key: CalibrationKey, calibration: Calibration) -> Calibration:
        self._known.pop(key, None)
        self._known[key] = calibration
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return calibration


def _any(key: CalibrationKey) -> CalibrationKey:
    return replace(key, tools=ANY_TOOLS)


def _field(key: CalibrationKey) -> str:
    return f"{key.model}\0{key.upstream}\0{key.tools}"


def _pack(calibration: Calibration) -> str:
    return json.dumps(asdict(calibration))


def _unpack(packed: bytes | None) -> Calibration | None:
    """None for what another version wrote and this one cannot read."""
    try:
        return None if packed is None else Calibration(**json.loads(packed))
    except (ValueError, TypeError):
        return None
