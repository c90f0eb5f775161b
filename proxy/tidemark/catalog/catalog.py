"""Finds the window and policy of a model, and answers ``GET /v1/models``.

The pipeline asks the catalog after the model is resolved, and before it identifies the conversation. A window comes
from the first source that has one: the registry's settings, the configuration file, the running server if the
configuration gives its address, our own data, litellm's data, the server if litellm gave its address, and at last a
default. A window learned from an upstream's overflow error replaces all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from tidemark.catalog.learned import LearnedWindows, learn_from_reply, learn_window, learn_window_and_density
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.catalog.overrides import LiveOverrides
from tidemark.catalog.prices import Prices
from tidemark.catalog.probe import Probe, entries_of, window_of
from tidemark.catalog.windows import ModelInfo, Windows
from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError
from tidemark.core.events import Listener, WindowAssumed
from tidemark.core.frozen import frozen
from tidemark.core.models import NOTHING_SET, ModelObservation, ModelOverrides
from tidemark.core.money import ModelPrice
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow
from tidemark.core.ports import Caller, Lane, Route
from tidemark.store.lessons import RedisLearnedWindows
from tidemark.summarizers.llm import AUTO, same_model, small_route
from tidemark.upstream.headers import caller_key
from tidemark.upstream.overflow import parse_overflow
from tidemark.upstream.providers import OPENAI_BASE, OPENAI_KEYS, endpoint, trimmed
from tidemark.upstream.routes import find
from tidemark.upstream.upstream import LiteLLMUpstream

LIST_SECONDS = 10.0
"""The longest wait for an upstream's list of models."""
REMEMBERED = 1024
"""The most models whose data are cached. Clients choose the names, so the cache needs a bound."""


@frozen
class _CachedProfile:
    """A model's profile, cached for later requests whose inputs are the same."""

    inputs: tuple[Route, ModelWindow, CompactionPolicy, ModelOverrides, ModelPrice | None]
    """The route, the window from its source, the configured policy, the registry's settings, and the price."""
    profile: ModelProfile
    """Without a learned window, which belongs to one caller."""
    observation: ModelObservation


class Catalog:
    """Implements ``ModelCatalog``, and lists the models.

    :param policy_for: the policy of a model by the client's name
    :param overrides: ``model_info`` of the configuration, by the client's name or a glob of it; read at every request,
        so that edits apply at once
    :param shipped: ``config/models.yaml``, by glob of the upstream's or the client's name
    :param live: the registry's settings; it also records the windows that requests find; None without a store
    :param learned_window_store: stores what overflows teach; None without a store
    """

    def __init__(
        self,
        upstream: LiteLLMUpstream,
        *,
        policy_for: Callable[[str], CompactionPolicy] = lambda _model: CompactionPolicy(),
        overrides: Mapping[str, ModelInfo] | None = None,
        shipped: Mapping[str, ModelInfo] | None = None,
        data: LiteLLMModelData | None = None,
        probe: Probe | None = None,
        live: LiveOverrides | None = None,
        learned_window_store: RedisLearnedWindows | None = None,
        emit: Listener = lambda _: None,
    ) -> None:
        self._upstream = upstream
        self._live = live
        self._policy_for = policy_for
        self._data = data or LiteLLMModelData()
        self._windows = Windows(
            overrides={} if overrides is None else overrides,
            shipped={} if shipped is None else shipped,
            data=self._data,
            probe=probe or Probe(upstream.wire.get_json),
        )
        self._prices = Prices(self._windows.stated, self._data.price)
        self._profiles: BoundedCache[str, _CachedProfile] = BoundedCache(REMEMBERED)
        """By the client's name."""
        self.learned_windows = LearnedWindows(learned_window_store, emit)
        self._emit = emit
        self._assumed: BoundedCache[str, int] = BoundedCache(REMEMBERED)
        """The windows that were reported as assumed, by the client's name for the model."""

    def use_policies(self, policy_for: Callable[[str], CompactionPolicy]) -> None:
        """Take the policies of all following requests from ``policy_for``: the operator changed settings."""
        self._policy_for = policy_for

    def policy_for(self, name: str) -> CompactionPolicy:
        """Return the policy that is in force for a model, by the client's name."""
        return self._policy_for(name)

    async def known_window(self, route: Route, caller: Caller) -> int | None:
        """Return the input window of a model, unless it is only a default."""
        window = (await self.profile(route, caller)).window
        return None if window.source == "default" else min(window.window, window.max_input_tokens)

    async def profile(self, route: Route, caller: Caller) -> ModelProfile:
        policy, overrides = self._policy_for(route.name), self._overrides_of(route)
        if overrides.states_window:
            window = ModelWindow(
                max_output_tokens=None if overrides.max_output_tokens else await self._windows.output(route)
            )
        else:
            window = await self._windows.find(route, caller)
        price = await self._prices.find(route)
        cached, inputs = self._profiles.get(route.name), (route, window, policy, overrides, price)
        if cached is None or cached.inputs != inputs:  # mostly the same objects, which tuples compare first
            in_force = self._with_cache_friendly(overrides.over_policy(policy), route, price)
            profile = ModelProfile(route.name, overrides.over_window(window), in_force, price=price)
            cached = _CachedProfile(inputs, profile, _observation(route, window, policy))
            self._profiles.put(route.name, cached)
        is_assumed = cached.profile.window.source == "default"
        is_loading = is_assumed and self._windows.is_loading(route)
        if is_assumed and not is_loading:
            self._tell_assumed(route.name, cached.profile.window.window)
        if self._live is not None and route.provider and not overrides.states_window and not is_loading:
            self._live.note(cached.observation)
        profile, learning_route = cached.profile, route
        if not overrides.states_window and (beta := self._windows.beta(route, caller)) is not None:
            profile, learning_route = _with_beta(profile, beta[1]), _learning_route(route, beta)
        learned = await self.learned_windows.of(learning_route, caller, overrides)
        if learned is None:
            return profile
        window = learned.over(profile.window)
        return replace(profile, window=window, density=learned.density, whole_reply=learned.whole_reply)

    async def price(self, route: Route) -> ModelPrice | None:
        """Return the price of a route's model; None if nobody states it."""
        return await self._prices.find(route)

    async def observe(self, route: Route, caller: Caller) -> ModelObservation:
        """Return a model as its sources describe it now, without the registry's settings."""
        return _observation(route, await self._windows.find(route, caller), self._policy_for(route.name))

    async def learn(
        self,
        route: Route,
        caller: Caller,
        profile: ModelProfile,
        *,
        status: int,
        body: bytes,
        sent_tokens: int,
        factor: float = 1.0,
        asked_tokens: int | None = None,
    ) -> ModelProfile | None:
        """Return the profile after an upstream's overflow error, with the window in tokens of our own count.

        The window is stored for this caller alone (promise 8), because an error may quote what the caller wrote.
        """
        overflow = parse_overflow(status, body)
        if overflow is None:
            return None
        if (learned := learn_from_reply(profile, overflow, round(sent_tokens * factor), asked_tokens)) is not None:
            replay_window = stored_window = learned
        elif profile.policy.calibrate:
            replay_window, stored_window = learn_window_and_density(profile.window, overflow, sent_tokens, factor)
        else:
            replay_window, stored_window = learn_window(profile.window, overflow, sent_tokens)
        whole_reply = profile.whole_reply or replay_window.whole_reply
        overrides = self._overrides_of(route)
        beta = None if overrides.states_window else self._windows.beta(route, caller)
        learning_route = _learning_route(route, beta)
        await self.learned_windows.keep(
            learning_route, caller, overrides, replace(stored_window, whole_reply=whole_reply)
        )
        return replace(profile, window=replay_window.window, density=replay_window.density, whole_reply=whole_reply)

    async def models(self, caller: Caller) -> dict[str, JsonValue]:
        """Answer ``GET /v1/models`` with the configured models, then the upstream's own list.

        With nothing configured, a caller with an OpenAI key gets OpenAI's list, and others get an empty one.

        :raises UpstreamError: the server of ``TIDEMARK_UPSTREAM`` does not list its models
        """
        routes = await self.configured()
        names = [route.name for route in routes]
        entries = await asyncio.gather(*(self._described(route, caller) for route in routes))
        answer: dict[str, JsonValue] = {"object": "list"}
        listed = await self._listed(caller, configured=bool(self._upstream.entries))
        if isinstance(listed, dict):
            answer |= listed
        others = [entry for entry in entries_of(listed) if entry["id"] not in names]
        entries += await asyncio.gather(*(self._with_window(entry, caller) for entry in others))
        return {**answer, "data": entries}

    async def _listed(self, caller: Caller, *, configured: bool) -> JsonValue:
        base = self._upstream.upstream_base_url
        if base:
            return await self._get_list(base, caller)
        if configured or not (caller_key(caller) or "").startswith(OPENAI_KEYS):
            return None
        try:
            return await self._get_list(OPENAI_BASE, caller)
        except UpstreamError:
            return None

    async def _get_list(self, base: str, caller: Caller) -> JsonValue:
        route = Route("wire", "models", "", "openai", base)
        wire = self._upstream.wire
        return await wire.get_json(route, endpoint(base, "/models"), caller, timeout_seconds=LIST_SECONDS)

    async def configured(self) -> list[Route]:
        """Return the routes of the configured models without importing litellm."""
        names = dict.fromkeys(entry.name for entry in self._upstream.entries if "*" not in entry.name)
        return [await self._configured(name) for name in names]

    async def _configured(self, name: str) -> Route:
        destination = find(self._upstream.entries, name)
        if destination is None:
            raise AssertionError(name)  # the name comes from the entries
        provider = destination.provider or await self._data.provider(destination.model) or "openai"
        base = trimmed(destination.base_url or "")
        lane: Lane = "wire" if base else "translate"
        model, key = destination.bare_model, destination.api_key
        return Route(lane, name, model, provider, base, key, destination.headers, destination.params)

    async def _described(self, route: Route, caller: Caller) -> Mapping[str, JsonValue]:
        """Return a configured model as an OpenAI model object."""
        entry: Mapping[str, JsonValue] = {
            "id": route.name,
            "object": "model",
            "created": 0,
            "owned_by": route.provider,
        }
        return {**entry, **_window_fields((await self.profile(route, caller)).window)}

    async def _with_window(self, entry: Mapping[str, JsonValue], caller: Caller) -> Mapping[str, JsonValue]:
        """Return an upstream's own entry with all its fields, and with window and longest reply if they are missing.

        A default is no knowledge, so it is left out.
        """
        name, base = str(entry["id"]), self._upstream.upstream_base_url
        route = Route("wire", name, name, "openai", base or OPENAI_BASE, params={"api_base": base} if base else None)
        stated_tokens = entry.get("context_length", window_of(entry))
        if stated_tokens is not None:
            reply_tokens = await self._windows.output(route)
        else:
            window = (await self.profile(route, caller)).window
            stated_tokens = None if window.source == "default" else window.window
            reply_tokens = window.max_output_tokens
        figures = {"context_length": stated_tokens, "max_output_tokens": reply_tokens}
        return {
            **entry,
            **{name: tokens for name, tokens in figures.items() if tokens is not None and name not in entry},
        }

    def _with_cache_friendly(
        self, policy: CompactionPolicy, route: Route, price: ModelPrice | None
    ) -> CompactionPolicy:
        """Return a policy with ``cache_friendly: auto`` resolved: it is on if it is known to save."""
        if policy.summarizer_cache_friendly is not None:
            return policy
        caches = policy.strategy != "extractive" and price is not None and price.caches
        return replace(policy, summarizer_cache_friendly=caches and self._summarizes_itself(policy, route))

    def _summarizes_itself(self, policy: CompactionPolicy, route: Route) -> bool:
        """Return whether a policy's summarizer is the conversation's own model, as far as the names say it."""
        model = policy.summarizer_model
        if model in ("", AUTO):
            return same_model(small_route(route), route)
        if model == route.name:
            return True
        other, own = (find(self._upstream.entries, name) for name in (model, route.name))
        if other is None or own is None:
            return other is None and model == f"{route.provider}/{route.upstream_model}"
        return (other.provider, other.bare_model, other.base_url) == (own.provider, own.bare_model, own.base_url)

    def _tell_assumed(self, model: str, window: int) -> None:
        """Tell once that a model's window is assumed."""
        if self._assumed.get(model) != window:
            self._assumed.put(model, window)
            self._emit(WindowAssumed(model, window, f"tidemark models set {model} max_input_tokens=TOKENS"))

    def _overrides_of(self, route: Route) -> ModelOverrides:
        return NOTHING_SET if self._live is None else self._live.of(route)


def _with_beta(profile: ModelProfile, tokens: int) -> ModelProfile:
    """Return the profile for a request whose beta header changes the window to ``tokens``."""
    window = replace(profile.window, max_input_tokens=tokens, context_window=None)
    return replace(profile, window=window)


def _learning_route(route: Route, beta: tuple[str, int] | None) -> Route:
    """Return the route that a window is learned under: a beta header's windows are learned apart."""
    return route if beta is None else replace(route, upstream_model=f"{route.upstream_model} {beta[0]}")


def _window_fields(window: ModelWindow) -> Mapping[str, JsonValue]:
    fields = {
        "context_length": window.window,
        "max_input_tokens": window.max_input_tokens,
        "max_output_tokens": window.max_output_tokens,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _observation(route: Route, window: ModelWindow, policy: CompactionPolicy) -> ModelObservation:
    return ModelObservation(
        route.provider, route.upstream_model, route.name, window, policy.threshold, policy.retention_tokens
    )
