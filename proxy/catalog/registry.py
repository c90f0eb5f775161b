"""The registry as people see it: what is known of each model, what follows from it, and what they may set.

Beside the road of a request, behind ``/tidemark/models`` and ``tidemark models``. A model is named by its id,
``provider:model``, or by the name that clients use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from proxy.catalog.catalog import Catalog
from proxy.catalog.litellm_data import LiteLLMModelData
from proxy.catalog.overrides import LiveOverrides
from proxy.core.conversation.messages import LONGEST_MODEL_NAME, JsonValue
from proxy.core.errors import InvalidRequest, ModelNotFound
from proxy.core.models import NOTHING_SET, FieldValue, ModelObservation, ModelOverrides, ModelRecord, model_id
from proxy.core.planning.budget import CompactionPolicy, budget_for
from proxy.core.planning.calibration import ANY_TOOLS, CalibrationEntry
from proxy.core.ports import CalibrationStore, Caller, ModelStore, Route
from proxy.upstream.litellm import LiteLLMUpstream

Described = dict[str, JsonValue]
ReadField = Callable[[str, JsonValue], FieldValue]
"""A field's name and value; raises ``InvalidRequest``."""


class ModelRegistry:
    """Holds no state of its own: records are the store's, what is in force is ``live``'s.

    :param read_field: which fields there are, and what they take
    :param policy_for: the configured policy of a model by the client's name
    :param clock: Unix time, seconds
    """

    def __init__(
        self,
        *,
        store: ModelStore,
        calibrations: CalibrationStore,
        live: LiveOverrides,
        catalog: Catalog,
        upstream: LiteLLMUpstream,
        data: LiteLLMModelData,
        policy_for: Callable[[str], CompactionPolicy],
        read_field: ReadField,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._calibrations = calibrations
        self._live = live
        self._catalog = catalog
        self._upstream = upstream
        self._data = data
        self._policy_for = policy_for
        self._read_field = read_field
        self._clock = clock

    async def listed(self, caller: Caller, owner: str | None) -> Described:
        """All models: the configured ones, then those that requests have found.

        Of the latter only the operator sees those that nobody set anything of: a model's name can tell what another
        tenant is at (promise 8).

        :param owner: whose calibrations and lessons are shown; None for the operator's view
        :raises StoreUnavailable: the store did not answer in time
        """
        records = {record.id: record for record in await self._store.records()}
        found: dict[str, ModelRecord] = {}
        for route in await self._catalog.configured():
            own = await self._record_of(route, caller, records.get(_id_of(route)))
            found.setdefault(own.id, own)
        shown = {one: record for one, record in records.items() if owner is None or _told_to_all(record)}
        found |= {one: record for one, record in shown.items() if one not in found}
        readings = await self._calibrations.readings(owner)
        return {"object": "list", "data": [self._described(one, readings, owner) for one in found.values()]}

    async def described(self, name: str, caller: Caller, owner: str | None) -> Described:
        """One model, by id or by the client's name.

        :param owner: as for ``listed``; of what only requests have found, nobody but the operator is told here either
        :raises ModelNotFound: nothing is known of it
        :raises StoreUnavailable: the store did not answer in time
        """
        record = await self._find(name, caller, everything=owner is None)
        if record.created_at is None and record.seen is None:
            raise ModelNotFound(f"Nothing is known of the model {name!r}. PUT its max_input_tokens to add it.")
        return self._described(record, await self._calibrations.readings(owner), owner)

    async def change(self, name: str, said: Mapping[str, JsonValue], caller: Caller, owner: str | None) -> Described:
        """Set some fields of a model; null takes one back. The next request of this worker has it.

        :raises InvalidRequest: a field is unknown, of another type, out of range, or contradicts another
        :raises ModelNotFound: the name leads nowhere, and is no id of a known provider's either
        :raises StoreUnavailable: nothing was changed
        """
        fields = {field: self._read_field(field, value) for field, value in said.items()}
        record = await self._find(name, caller)
        return await self._keep(record, lambda before: self._changed(record.name, before, fields), owner)

    def _changed(self, name: str, before: ModelOverrides, fields: Mapping[str, FieldValue]) -> ModelOverrides:
        """What is set of a model after a change; :raises InvalidRequest: it contradicts itself or the policy."""
        try:
            overrides = before.changed(fields)
        except ValueError as error:
            raise InvalidRequest(
                f"'context_window' is {error}, less than max_input_tokens; it holds input and output together.",
                param="context_window",
            ) from error
        policy, threshold = self._policy_for(name), overrides.threshold
        if threshold is not None and threshold <= 1 and policy.target >= threshold:
            raise InvalidRequest(
                f"'threshold' must be above the model's target, {policy.target:g}: a compaction brings a request "
                "well under the mark that it is due at.",
                param="threshold",
            )
        return overrides

    async def reset(self, name: str, caller: Caller, owner: str | None) -> Described:
        """Take back all that was set of a model.

        :raises ModelNotFound: nothing is known of it
        :raises StoreUnavailable: nothing was changed
        """
        record = await self._find(name, caller)
        if record.created_at is None and record.seen is None:
            raise ModelNotFound(f"Nothing is known of the model {name!r}, and nothing was set.")
        return await self._keep(record, lambda _: NOTHING_SET, owner)

    async def _keep(
        self, record: ModelRecord, change: Callable[[ModelOverrides], ModelOverrides], owner: str | None
    ) -> Described:
        await self._store.override(record, change, self._clock())
        await self._live.refresh()
        kept = await self._store.record(record.id) or replace(record, overrides=NOTHING_SET)
        after = replace(kept, seen=kept.seen or record.seen)
        return self._described(after, await self._calibrations.readings(owner), owner)

    async def _find(self, name: str, caller: Caller, *, everything: bool = True) -> ModelRecord:
        """By the id of a record or of a configured model, by the client's name, by the id of a model not seen yet.

        :param everything: what only requests have found as well; else it is as if they had not
        """
        if len(name) > LONGEST_MODEL_NAME:
            raise ModelNotFound(f"A model's name has {LONGEST_MODEL_NAME} characters at most.")
        kept = await self._store.record(name)
        stored = kept if everything else _told_to_all(kept)
        if stored is not None and stored.seen is not None:
            return stored
        routes = await self._catalog.configured()
        named = next((route for route in routes if name in (route.name, _id_of(route))), None)
        provider, _, model = name.partition(":")
        if named is not None:
            return await self._record_of(named, caller, kept or await self._store.record(_id_of(named)))
        if everything and (sighting := self._live.noted(name)) is not None:
            return _sighted(sighting, stored)
        if stored is not None or (model and provider in await self._data.providers()):
            route = Route("translate", model, model, provider, "")  # no server is asked for what is no route
            own = await self._record_of(route, caller, stored)
            unknown = own.seen is not None and own.seen.window.source == "default"
            return replace(own, seen=None) if unknown else own
        route = await self._upstream.resolve(name)
        kept = await self._store.record(_id_of(route))
        return await self._record_of(route, caller, kept if everything else _told_to_all(kept))

    async def _record_of(self, route: Route, caller: Caller, stored: ModelRecord | None) -> ModelRecord:
        """A route's record as it is found now, whether it is stored yet or not."""
        return _sighted(await self._catalog.sighting(route, caller), stored)

    def _described(
        self, record: ModelRecord, readings: Mapping[str, Sequence[CalibrationEntry]], owner: str | None
    ) -> Described:
        profile = record.profile(self._policy_for(record.name))
        lessons = self._catalog.lessons
        window = lessons.shown(record.provider, record.model, record.overrides, owner, profile.window)
        policy, budget = profile.policy, budget_for(replace(profile, window=window), None)
        return {
            "id": record.id,
            "object": "tidemark.model",
            "provider": record.provider,
            "model": record.model,
            "name": record.name,
            "max_input_tokens": window.max_input_tokens,
            "max_output_tokens": window.max_output_tokens,
            "context_window": window.context_window,
            "threshold": policy.threshold,
            "retention_tokens": policy.retention_tokens,
            "source": window.source,
            "overrides": record.overrides.given,
            "window": budget.window,
            "limit": budget.limit,
            "high_water": budget.high_water,
            "prepare": budget.prepare_mark,
            "low_water": budget.low_water,
            "retention": budget.retention,
            "calibration": _calibration(readings.get(record.id, ())),
            "created_at": record.created_at,
            "updated_at": record.updated_at,
        }


def _sighted(sighting: ModelObservation, stored: ModelRecord | None) -> ModelRecord:
    found = ModelRecord(sighting.provider, sighting.model, sighting.name, sighting)
    return found if stored is None else replace(stored, name=sighting.name, seen=sighting)


def _told_to_all(record: ModelRecord | None) -> ModelRecord | None:
    """A record that a person set something of; another one tells what somebody's requests are at (promise 8)."""
    return None if record is None or record.overrides == NOTHING_SET else record


def _id_of(route: Route) -> str:
    return model_id(route.provider, route.upstream_model)


def _calibration(readings: Sequence[CalibrationEntry]) -> JsonValue:
    """The model's own calibration, and those of its tool sets beside it; null while nothing is learned."""
    told: list[Described] = [
        {
            "factor": round(one.calibration.factor, 4),
            "applied": round(one.calibration.applied, 4),
            "replies": one.calibration.replies,
            "updated_at": one.calibration.updated_at,
        }
        for one in readings
    ]
    if not told:
        return None
    sets = [{"tools": one.tools, **own} for one, own in zip(readings, told, strict=True) if one.tools != ANY_TOOLS]
    return {**told[0], "tool_sets": sets}
