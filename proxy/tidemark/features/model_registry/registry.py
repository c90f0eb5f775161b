"""Shows and changes the registry of models, for ``/tidemark/models`` and ``tidemark models``.

It is no step of a chat request. A model has an id, ``provider:model``, and the name that clients use; callers may use
either of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tidemark.catalog.catalog import Catalog
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.catalog.overrides import LiveOverrides
from tidemark.core.conversation.messages import LONGEST_MODEL_NAME, JsonValue
from tidemark.core.errors import InvalidRequest, ModelConflict, ModelNotFound
from tidemark.core.frozen import frozen
from tidemark.core.models import NOTHING_SET, FieldValue, ModelObservation, ModelOverrides, ModelRecord, model_id
from tidemark.core.money import ModelPrice
from tidemark.core.planning.budget import budget_for
from tidemark.core.planning.calibration import ANY_TOOLS, CalibrationEntry
from tidemark.core.planning.price import Growth, priced
from tidemark.core.ports import Caller, Route
from tidemark.store.calibrations import RedisCalibrations
from tidemark.store.models import RedisModels
from tidemark.upstream.upstream import LiteLLMUpstream

Described = dict[str, JsonValue]
ReadField = Callable[[str, JsonValue], FieldValue]
"""Reads a field by its name and JSON value; raises ``InvalidRequest``."""


@frozen(kw_only=True)
class ModelRegistry:
    """Has no state of its own: the store has the records, and ``live`` the settings in force.

    :param read_field: checks the fields and their values
    :param clock: Unix time, seconds
    """

    store: RedisModels
    calibrations: RedisCalibrations
    live: LiveOverrides
    catalog: Catalog
    upstream: LiteLLMUpstream
    data: LiteLLMModelData
    read_field: ReadField
    clock: Callable[[], float]

    async def listed(self, caller: Caller, owner: str | None) -> Described:
        """Describe all models: the configured ones, then those that requests used.

        If requests used a model and nobody changed it, only the operator sees it, because its name can reveal what
        another tenant does (promise 8).

        :param owner: the owner whose calibrations and learned windows are shown; None for the operator's view
        :raises StoreUnavailable: the store did not answer in time
        """
        records = {record.id: record for record in await self.store.records()}
        models: dict[str, ModelRecord] = {}
        for route in await self.catalog.configured():
            own = await self._record_of(route, caller, records.get(_id_of(route)))
            models.setdefault(own.id, own)
        shown = {id_: record for id_, record in records.items() if owner is None or _if_set_by_operator(record)}
        models |= {id_: record for id_, record in shown.items() if id_ not in models}
        calibrations = await self.calibrations.readings(owner)
        described = [await self._described(model, calibrations, owner) for model in models.values()]
        return {"object": "list", "data": [*described]}

    async def described(self, name: str, caller: Caller, owner: str | None) -> Described:
        """Describe one model, by id or by the client's name.

        :param owner: as for ``listed``, with the same rule for models that only requests used
        :raises ModelNotFound: no source describes the model
        :raises StoreUnavailable: the store did not answer in time
        """
        record = await self._find(name, caller, everything=owner is None)
        if record.created_at is None and record.observation is None:
            raise ModelNotFound(f"Nothing is known of the model {name!r}. PUT its max_input_tokens to add it.")
        return await self._described(record, await self.calibrations.readings(owner), owner)

    async def change(self, name: str, fields: Mapping[str, JsonValue], caller: Caller, owner: str | None) -> Described:
        """Set some fields of a model; null resets a field. The change applies to this worker's next request.

        :param fields: with ``version``, the version that the sender has read, nothing newer is overwritten
        :raises InvalidRequest: a field is unknown, of another type, out of range, or contradicts another
        :raises ModelConflict: the settings have another version
        :raises ModelNotFound: the name resolves to no model, and is no id of a known provider
        :raises StoreUnavailable: nothing was changed
        """
        version = _version_of(fields)
        values = {field: self.read_field(field, value) for field, value in fields.items() if field != "version"}
        record = await self._find(name, caller)

        def change(before: ModelOverrides) -> ModelOverrides:
            if version is not None and version != before.version:
                raise ModelConflict
            return self._changed(record.name, before, values)

        return await self._keep(record, change, owner)

    def _changed(self, name: str, before: ModelOverrides, fields: Mapping[str, FieldValue]) -> ModelOverrides:
        """Return the overrides after a change; :raises InvalidRequest: they contradict each other or the policy."""
        try:
            overrides = before.with_fields(fields)
        except ValueError as error:
            raise InvalidRequest(
                f"'context_window' is {error}, less than max_input_tokens; it holds input and output together.",
                param="context_window",
            ) from error
        policy, threshold = self.catalog.policy_for(name), overrides.threshold
        if threshold is not None and threshold <= 1 and policy.target >= threshold:
            raise InvalidRequest(
                f"'threshold' must be above the model's target, {policy.target:g}, up to 1, or a number of tokens: a "
                "compaction brings a request well under the mark that it is due at.",
                param="threshold",
            )
        return overrides

    async def reset(self, name: str, caller: Caller, owner: str | None) -> Described:
        """Reset all settings of a model.

        :raises ModelNotFound: no source describes the model
        :raises StoreUnavailable: nothing was changed
        """
        record = await self._find(name, caller)
        if record.created_at is None and record.observation is None:
            raise ModelNotFound(f"Nothing is known of the model {name!r}, and nothing was set.")
        return await self._keep(record, lambda _: NOTHING_SET, owner)

    async def _keep(
        self, record: ModelRecord, change: Callable[[ModelOverrides], ModelOverrides], owner: str | None
    ) -> Described:
        await self.store.override(record, change, self.clock())
        await self.live.refresh()
        stored = await self.store.record(record.id) or replace(record, overrides=NOTHING_SET)
        after = replace(stored, observation=stored.observation or record.observation)
        return await self._described(after, await self.calibrations.readings(owner), owner)

    async def _find(self, name: str, caller: Caller, *, everything: bool = True) -> ModelRecord:
        """Find a model by its id or the client's name; an id may be of a model not used yet.

        :param everything: whether models that only requests used are included
        """
        if len(name) > LONGEST_MODEL_NAME:
            raise ModelNotFound(f"A model's name has {LONGEST_MODEL_NAME} characters at most.")
        record = await self.store.record(name)
        stored = record if everything else _if_set_by_operator(record)
        if stored is not None and stored.observation is not None:
            return stored
        routes = await self.catalog.configured()
        configured = next((route for route in routes if name in (route.name, _id_of(route))), None)
        provider, _, model = name.partition(":")
        if configured is not None:
            return await self._record_of(configured, caller, record or await self.store.record(_id_of(configured)))
        if everything and (observation := self.live.noted(name)) is not None:
            return _observed(observation, stored)
        if stored is not None or (model and provider in await self.data.providers()):
            route = Route("translate", model, model, provider, "")  # without an address, no server is asked
            own = await self._record_of(route, caller, stored)
            unknown = own.observation is not None and own.observation.window.source == "default"
            return replace(own, observation=None) if unknown else own
        route = await self.upstream.resolve(name)
        record = await self.store.record(_id_of(route))
        return await self._record_of(route, caller, record if everything else _if_set_by_operator(record))

    async def _record_of(self, route: Route, caller: Caller, stored: ModelRecord | None) -> ModelRecord:
        """Return a route's record with the current observation, whether it is stored yet or not."""
        return _observed(await self.catalog.observe(route, caller), stored)

    async def _price_of(self, record: ModelRecord) -> ModelPrice | None:
        """Return the price that requests for a model have; None if its name leads nowhere."""
        try:
            route = await self.upstream.resolve(record.name)
        except ModelNotFound:
            return None
        return await self.catalog.price(route)

    async def _described(
        self, record: ModelRecord, calibrations: Mapping[str, Sequence[CalibrationEntry]], owner: str | None
    ) -> Described:
        profile = record.profile(self.catalog.policy_for(record.name))
        learned_windows = self.catalog.learned_windows
        window = learned_windows.shown(record.provider, record.model, record.overrides, owner, profile.window)
        policy = profile.policy
        price = await self._price_of(record) if policy.by_price else None
        budget = budget_for(replace(profile, window=window, price=price), None)
        marks = priced(budget, policy, Growth(turns=0, tokens=0.0), 0, is_cold=False)
        return {
            "id": record.id,
            "object": "tidemark.model",
            "provider": record.provider,
            "model": record.model,
            "name": record.name,
            "max_input_tokens": window.max_input_tokens,
            "max_output_tokens": window.max_output_tokens,
            "context_window": window.context_window,
            "threshold": "price" if policy.by_price else policy.threshold,
            "price_floor": policy.price_floor if budget.price is not None else None,
            "retention_tokens": policy.retention_tokens,
            "source": window.source,
            "overrides": record.overrides.set_fields,
            "version": record.overrides.version,
            "target": policy.target,
            "window": budget.window,
            "limit": budget.limit,
            "high_water": marks.high_water,
            "prepare": marks.prepare_mark,
            "low_water": marks.low_water,
            "retention": budget.retention,
            "calibration": _calibration(calibrations.get(record.id, ())),
            "created_at": record.created_at,
            "updated_at": record.updated_at,
        }


def _version_of(fields: Mapping[str, JsonValue]) -> str | None:
    version = fields.get("version")
    if version is not None and not isinstance(version, str):
        raise InvalidRequest("'version' is a text that describes the model.", param="version", code="invalid_type")
    return version


def _observed(observation: ModelObservation, stored: ModelRecord | None) -> ModelRecord:
    observed = ModelRecord(observation.provider, observation.model, observation.name, observation)
    return observed if stored is None else replace(stored, name=observation.name, observation=observation)


def _if_set_by_operator(record: ModelRecord | None) -> ModelRecord | None:
    """Return a record that has overrides, else None: its name could reveal a tenant's requests (promise 8)."""
    return None if record is None or record.overrides == NOTHING_SET else record


def _id_of(route: Route) -> str:
    return model_id(route.provider, route.upstream_model)


def _calibration(entries: Sequence[CalibrationEntry]) -> JsonValue:
    """Return the model's own calibration with those of its tool sets; null while nothing is learned."""
    factors: list[Described] = [
        {
            "factor": round(entry.calibration.factor, 4),
            "applied": round(entry.calibration.applied, 4),
            "replies": entry.calibration.replies,
            "updated_at": entry.calibration.updated_at,
        }
        for entry in entries
    ]
    if not factors:
        return None
    sets = [
        {"tools": entry.tools, **own} for entry, own in zip(entries, factors, strict=True) if entry.tools != ANY_TOOLS
    ]
    return {**factors[0], "tool_sets": sets}
