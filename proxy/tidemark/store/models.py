"""Stores what is set and observed of models, the registry's records.

The catalog reads it in the background, and the operator changes it. Observations and settings are two hashes under one
hash tag; the version beside them changes with the settings only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tidemark.core.errors import RecordUnreadable, StoreUnavailable
from tidemark.core.models import (
    NOTHING_SET,
    ModelObservation,
    ModelOverrides,
    ModelRecord,
    RegistryVersion,
    merged_observation,
    model_id,
)
from tidemark.core.planning.budget import ModelWindow
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask
from tidemark.store.scripts import lua

MOST_MODELS = 1000
"""Observations that are stored, the newest; clients choose names, so there must be a bound. Settings do not count."""
TRIES = 16
"""Changes of one model that may come at the same instant and all take effect."""

_OVERRIDE, _SIGHT, _MODELS = (lua(__file__, name) for name in ("override", "sight", "models"))


class RedisModels:
    """The registry's records (FR-4.1.3) in Redis, which are the operator's: no tenant has any. It has no other state.

    If a docstring does not say otherwise, a method raises ``StoreUnavailable`` when the store did not answer in time.
    """

    def __init__(self, ask: Ask, codec: Codec) -> None:
        self._ask = ask
        self._codec = codec

    async def version(self) -> RegistryVersion:
        """Return the version of all settings; it is new after every change, and after the store was emptied.

        It is asked during an outage too, and so the store's return is noticed.
        """
        return _version(await self._ask("GET", keys.models_part("v"), probe=True))

    async def changed(self) -> tuple[RegistryVersion, Sequence[ModelRecord]]:
        """Return the version, and the records with settings, without observations."""
        version, settings, _ = await self._all()
        return version, self._merged(settings, {})

    async def records(self) -> Sequence[ModelRecord]:
        _, settings, observations = await self._all()
        return sorted(self._merged(settings, observations), key=lambda record: record.id)

    async def record(self, model: str) -> ModelRecord | None:
        settings = {model: await self._ask("HGET", keys.models_part("o"), model)}
        observations = {model: await self._ask("HGET", keys.models_part("r"), model)}
        return next(iter(self._merged(settings, observations)), None)

    async def sight(self, sighting: ModelObservation, now: float) -> None:
        """Store what a request showed of a model, unless it is stored already, and the time of it."""
        model = model_id(sighting.provider, sighting.model)
        record = merged_observation(await self.record(model), sighting, now)
        if record is None:
            await self._ask("ZADD", keys.models_part("t"), "XX", now, model)
        else:
            await self._run(_SIGHT, model, self._pack(record, asdict(sighting), "r"), now, MOST_MODELS)

    async def override(
        self, record: ModelRecord, change: Callable[[ModelOverrides], ModelOverrides], now: float
    ) -> None:
        """Change the settings of a record, which its id identifies; no setting leaves no record.

        :param change: returns the new settings for the stored ones; called again if another change was faster.
            What it raises leaves everything as it is
        :raises StoreUnavailable: the store did not answer in time, or others were faster again and again
        """
        for _ in range(TRIES):
            before: bytes | None = await self._ask("HGET", keys.models_part("o"), record.id)
            stored = self._read(before, _overrides, "o", record.id)
            overrides = change(stored.overrides if stored else NOTHING_SET)
            created_at = _earliest(record.created_at, stored.created_at if stored else None)
            after = replace(record, created_at=now if created_at is None else created_at, updated_at=now)
            packed = b"" if overrides == NOTHING_SET else self._pack(after, overrides.set_fields, "o")
            if await self._run(_OVERRIDE, record.id, before or "", packed, uuid.uuid4().hex):
                return
        raise StoreUnavailable("Too many requests change this model at once. Nothing was changed; send it again.")

    async def _all(self) -> tuple[RegistryVersion, Mapping[str, Any], Mapping[str, Any]]:
        version, settings, observations = await self._run(_MODELS, uuid.uuid4().hex)
        return _version(version), _pairs(settings), _pairs(observations)

    async def _run(self, script: str, *arguments: str | bytes | float) -> Any:
        """Run a script by its source: this is rare, and the source is short."""
        return await self._ask("EVAL", script, 1, keys.MODELS, *arguments)

    def _pack(self, record: ModelRecord, content: Mapping[str, Any], kind: str) -> bytes:
        about = {"provider": record.provider, "model": record.model, "name": record.name}
        times = {"created_at": record.created_at, "updated_at": record.updated_at}
        at = keys.models_part(kind)
        return self._codec.pack_json({**about, **times, "told": content}, "", at, record.id)

    def _merged(
        self, settings: Mapping[str, bytes | None], observations: Mapping[str, bytes | None]
    ) -> Sequence[ModelRecord]:
        """Return the records of both hashes; a record that cannot be read is left out."""
        ids = dict.fromkeys([*observations, *settings])
        pairs = (
            (
                self._read(observations.get(model), _observation, "r", model),
                self._read(settings.get(model), _overrides, "o", model),
            )
            for model in ids
        )
        return [record for pair in pairs if (record := _joined(*pair)) is not None]

    def _read(
        self, packed: bytes | None, fields: Callable[[Any], Mapping[str, Any]], kind: str, model: str
    ) -> ModelRecord | None:
        """Return a record, or None for one that another version wrote and this one cannot read."""
        if packed is None:
            return None
        try:
            content = self._codec.unpack_json(packed, keys.models_part(kind), model)
            own = fields(content.pop("told"))
            return ModelRecord(**content, **own)
        except (RecordUnreadable, ValueError, TypeError, KeyError, AttributeError):
            return None


def _version(packed: bytes | None) -> RegistryVersion:
    epoch, _, change = (packed or b"").decode().partition(":")
    return RegistryVersion(epoch, change)


def _pairs(flat: Sequence[bytes]) -> Mapping[str, bytes]:
    return {name.decode(): packed for name, packed in zip(flat[::2], flat[1::2], strict=True)}


def _joined(observed: ModelRecord | None, stored: ModelRecord | None) -> ModelRecord | None:
    if observed is None or stored is None:
        return observed or stored
    return replace(
        observed,
        overrides=stored.overrides,
        created_at=_earliest(observed.created_at, stored.created_at),
        updated_at=max(observed.updated_at or 0.0, stored.updated_at or 0.0),
    )


def _earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)


def _observation(content: Any) -> Mapping[str, Any]:
    return {"observation": ModelObservation(**{**content, "window": ModelWindow(**content["window"])})}


def _overrides(content: Any) -> Mapping[str, Any]:
    return {"overrides": ModelOverrides(**content)}
