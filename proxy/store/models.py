"""The registry's adapter: ``ModelStore`` over the room's one connection, and how its records are packed.

Beside the road of a request: read in the background, changed by the operator. What was found of a model and what
a person set of it are two hashes under one hash tag; the version beside them changes with the latter only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from proxy.core.errors import StoreUnavailable
from proxy.core.models import (
    NOTHING_SET,
    ModelObservation,
    ModelOverrides,
    ModelRecord,
    RegistryVersion,
    merged_observation,
    model_id,
)
from proxy.core.planning.budget import ModelWindow
from proxy.store import keys

Ask = Callable[..., Awaitable[Any]]
"""``RedisStore.ask``."""
MOST_MODELS = 1000
"""Sightings that are kept, those seen last; clients choose names, so there must be a bound. What a person set is not
counted."""
TRIES = 16
"""Of so many changes of a model at the same instant every one gets through."""

_FOLDER = Path(__file__).with_name("lua")
_OVERRIDE, _SIGHT, _MODELS = ((_FOLDER / f"{name}.lua").read_text("utf-8") for name in ("override", "sight", "models"))


class RedisModels:
    """The registry's records in Redis. Its mutable state is the server's alone."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def version(self) -> RegistryVersion:
        """Another one after every change; asked even while the store rests, and so its return is seen.

        :raises StoreUnavailable: the store did not answer in time
        """
        return _version(await self._ask("GET", keys.models_part("v"), probe=True))

    async def changed(self) -> tuple[RegistryVersion, Sequence[ModelRecord]]:
        """The version, and the records that a person set something of; without what was found."""
        version, overridden, _ = await self._all()
        return version, _merged(overridden, {})

    async def records(self) -> Sequence[ModelRecord]:
        """All records, by id."""
        _, overridden, seen = await self._all()
        return sorted(_merged(overridden, seen), key=lambda record: record.id)

    async def record(self, model: str) -> ModelRecord | None:
        """The record with this id."""
        overridden = {model: await self._ask("HGET", keys.models_part("o"), model)}
        seen = {model: await self._ask("HGET", keys.models_part("r"), model)}
        return next(iter(_merged(overridden, seen)), None)

    async def sight(self, sighting: ModelObservation, now: float) -> None:
        """Keep what a request found of a model, unless it is known already, and when it was seen last."""
        model = model_id(sighting.provider, sighting.model)
        record = merged_observation(await self.record(model), sighting, now)
        if record is None:
            await self._ask("ZADD", keys.models_part("t"), "XX", now, model)
        else:
            await self._run(_SIGHT, model, _pack(record, asdict(sighting)), now, MOST_MODELS)

    async def override(
        self, record: ModelRecord, change: Callable[[ModelOverrides], ModelOverrides], now: float
    ) -> None:
        """Keep what a person set, upon what others have set meanwhile; nothing set leaves nothing behind.

        :raises StoreUnavailable: the store did not answer in time, or others were faster again and again
        """
        for _ in range(TRIES):
            before: bytes | None = await self._ask("HGET", keys.models_part("o"), record.id)
            said = _read(before, _overrides)
            overrides = change(said.overrides if said else NOTHING_SET)
            began = _least(record.created_at, said.created_at if said else None)
            after = replace(record, created_at=now if began is None else began, updated_at=now)
            packed = "" if overrides == NOTHING_SET else _pack(after, overrides.given)
            if await self._run(_OVERRIDE, record.id, before or "", packed, uuid.uuid4().hex):
                return
        raise StoreUnavailable("Too many change this model at once. Nothing was changed; send it again.")

    async def _all(self) -> tuple[RegistryVersion, Mapping[str, Any], Mapping[str, Any]]:
        version, overridden, seen = await self._run(_MODELS, uuid.uuid4().hex)
        return _version(version), _pairs(overridden), _pairs(seen)

    async def _run(self, script: str, *arguments: str | bytes | float) -> Any:
        """A script by its source: this is rare, and the source is short."""
        return await self._ask("EVAL", script, 1, keys.MODELS, *arguments)


def _version(packed: bytes | None) -> RegistryVersion:
    epoch, _, change = (packed or b"").decode().partition(":")
    return RegistryVersion(epoch, change)


def _pairs(flat: Sequence[bytes]) -> Mapping[str, bytes]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _pack(record: ModelRecord, told: Mapping[str, Any]) -> str:
    about = {"provider": record.provider, "model": record.model, "name": record.name}
    return json.dumps({**about, "created_at": record.created_at, "updated_at": record.updated_at, "told": told})


def _merged(overridden: Mapping[str, bytes | None], seen: Mapping[str, bytes | None]) -> Sequence[ModelRecord]:
    """Records out of both hashes; what another version wrote and this one cannot read is as if it were not there."""
    ids = dict.fromkeys([*seen, *overridden])
    pairs = ((_read(seen.get(one), _sighting), _read(overridden.get(one), _overrides)) for one in ids)
    return [record for found, said in pairs if (record := _joined(found, said)) is not None]


def _joined(found: ModelRecord | None, said: ModelRecord | None) -> ModelRecord | None:
    if found is None or said is None:
        return found or said
    return replace(
        found,
        overrides=said.overrides,
        created_at=_least(found.created_at, said.created_at),
        updated_at=max(found.updated_at or 0.0, said.updated_at or 0.0),
    )


def _least(*times: float | None) -> float | None:
    return min((one for one in times if one is not None), default=None)


def _read(packed: bytes | None, told: Callable[[Any], Mapping[str, Any]]) -> ModelRecord | None:
    if packed is None:
        return None
    try:
        value = json.loads(packed)
        own = told(value.pop("told"))
        return ModelRecord(**value, **own)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _sighting(told: Any) -> Mapping[str, Any]:
    return {"seen": ModelObservation(**{**told, "window": ModelWindow(**told["window"])})}


def _overrides(told: Any) -> Mapping[str, Any]:
    return {"overrides": ModelOverrides(**told)}
