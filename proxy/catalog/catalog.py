"""What is known of models: window, policy, and the list that ``GET /v1/models`` answers.

On the road of a request after its model is resolved, before identity and budget. A window comes from the first source
that has one: what a person set in the registry, what a person wrote in the file, the running server where a person gave
its address, our own data, litellm's, the server where litellm gave its address, and at last an assumption. What an
upstream's overflow taught goes over all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from proxy.catalog.learned import lesson_of_reply, lessons_apart, lessons_in_one
from proxy.catalog.learned_windows import LearnedWindows
from proxy.catalog.litellm_data import LiteLLMModelData
from proxy.catalog.overrides import LiveOverrides
from proxy.catalog.probe import Probe, entries_of, window_of
from proxy.catalog.windows import ModelInfo, Windows
from proxy.core.bounded import remember
from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import UpstreamError
from proxy.core.models import NOTHING_SET, ModelObservation, ModelOverrides
from proxy.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow
from proxy.core.ports import Caller, Lane, LearnedWindowStore, Route
from proxy.upstream.bases import endpoint, trimmed
from proxy.upstream.headers import caller_key
from proxy.upstream.litellm import LiteLLMUpstream
from proxy.upstream.overflow import parse_overflow
from proxy.upstream.providers import OPENAI_BASE
from proxy.upstream.routes import find

LIST_SECONDS = 10.0
"""The longest wait for an upstream's list of models."""
REMEMBERED = 1024
"""Models whose data are kept; clients choose names, so there must be a bound."""
OPENAI_KEYS = ("sk-proj-", "sk-svcacct-")
"""Keys that can only be OpenAI's; a key of another form is not shown to OpenAI to find out."""


@dataclass(frozen=True, slots=True)
class _Made:
    """What a request for a model was given, kept for the next one that all of it is the same for."""

    of: tuple[Route, ModelWindow, CompactionPolicy, ModelOverrides]
    """Where it went, the window as it was found, the configured policy, and what a person had set over both."""
    profile: ModelProfile
    """Without a lesson, which is one caller's alone."""
    sighting: ModelObservation


class Catalog:
    """``ModelCatalog``, and the list of models.

    :param policy_for: the policy of a model by the client's name
    :param overrides: what a person wrote, by the client's name or a glob of it; read at every request, so
        that edits apply at once
    :param shipped: ``config/models.yaml``, by glob of the upstream's or the client's name
    :param live: what a person set in the registry, which is told what requests find; None without a store
    :param lessons: where what overflows taught is kept; None without a store
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
        lessons: LearnedWindowStore | None = None,
    ) -> None:
        self._upstream = upstream
        self._live = live
        self._policy_for = policy_for
        self._data = data or LiteLLMModelData()
        self._windows = Windows(
            overrides={} if overrides is None else overrides,
            shipped={} if shipped is None else shipped,
            data=self._data,
            probe=probe or Probe(upstream.wire),
        )
        self._made: dict[str, _Made] = {}
        """By the client's name."""
        self.lessons = LearnedWindows(lessons)

    async def profile(self, route: Route, caller: Caller) -> ModelProfile:
        """Window and policy of a model; never fails, the last source is a default."""
        policy, said = self._policy_for(route.name), self._said(route)
        if said.states_window:
            found = ModelWindow(max_output_tokens=None if said.max_output_tokens else await self._windows.output(route))
        else:
            found = await self._windows.found(route, caller)
        made, of = self._made.get(route.name), (route, found, policy, said)
        if made is None or made.of != of:  # tuples look first whether it is the very same, which it mostly is
            own = ModelProfile(route.name, said.over_window(found), said.over_policy(policy))
            made = _Made(of, own, _sighting(route, found, policy))
            remember(self._made, route.name, made, most=REMEMBERED)
        if self._live is not None and route.provider and not said.states_window:
            self._live.note(made.sighting)
        profile, taught = made.profile, route
        if not said.states_window and (beta := self._windows.beta(route, caller)) is not None:
            profile, taught = _with_beta(profile, beta[1]), _as_taught(route, beta)
        lesson = await self.lessons.of(taught, caller, said)
        if lesson is None:
            return profile
        return ModelProfile(route.name, lesson.over(profile.window), profile.policy, lesson.density, lesson.whole_reply)

    async def sighting(self, route: Route, caller: Caller) -> ModelObservation:
        """A model as it is found now, for the registry: without what a person set there."""
        return _sighting(route, await self._windows.found(route, caller), self._policy_for(route.name))

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
        """The profile after an upstream's overflow error, its window as our own counting must see it.

        Remembered for this caller alone (promise 8): what an error says may quote what the caller wrote.
        """
        overflow = parse_overflow(status, body)
        if overflow is None:
            return None
        if (of_reply := lesson_of_reply(profile, overflow, round(sent_tokens * factor), asked_tokens)) is not None:
            now = kept = of_reply
        elif profile.policy.calibrate:
            now, kept = lessons_apart(profile.window, overflow, sent_tokens, factor)
        else:
            now, kept = lessons_in_one(profile.window, overflow, sent_tokens)
        whole_reply = profile.whole_reply or now.whole_reply
        said = self._said(route)
        beta = None if said.states_window else self._windows.beta(route, caller)
        taught = _as_taught(route, beta)
        await self.lessons.keep(taught, caller, said, replace(kept, whole_reply=whole_reply))
        return replace(profile, window=now.window, density=now.density, whole_reply=whole_reply)

    async def models(self, caller: Caller) -> dict[str, JsonValue]:
        """The answer to ``GET /v1/models``: configured models, then the upstream's own list.

        With nothing configured it is OpenAI's list for a caller with an OpenAI key, and empty for others.

        :raises UpstreamError: ``TIDEMARK_UPSTREAM`` does not tell its models
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
        """The routes of the models that the list names; litellm is not imported for them."""
        names = dict.fromkeys(entry.name for entry in self._upstream.entries if "*" not in entry.name)
        return [await self._configured(name) for name in names]

    async def _configured(self, name: str) -> Route:
        destination = find(self._upstream.entries, name)
        if destination is None:
            raise AssertionError(name)  # it comes from the entries
        provider = destination.provider or await self._data.provider(destination.model) or "openai"
        base = trimmed(destination.base_url or "")
        lane: Lane = "wire" if base else "translate"
        model, key = destination.bare_model, destination.api_key
        return Route(lane, name, model, provider, base, key, destination.headers, destination.params)

    async def _described(self, route: Route, caller: Caller) -> Mapping[str, JsonValue]:
        """A configured model as an OpenAI model object."""
        entry: Mapping[str, JsonValue] = {
            "id": route.name,
            "object": "model",
            "created": 0,
            "owned_by": route.provider,
        }
        return {**entry, **_window_fields((await self.profile(route, caller)).window)}

    async def _with_window(self, entry: Mapping[str, JsonValue], caller: Caller) -> Mapping[str, JsonValue]:
        """An upstream's own entry, all its fields kept, with ``context_length`` where it has none."""
        if "context_length" in entry:
            return entry
        if (told := window_of(entry)) is not None:
            return {**entry, "context_length": told}
        name, base = str(entry["id"]), self._upstream.upstream_base_url
        route = Route("wire", name, name, "openai", base or OPENAI_BASE, params={"api_base": base} if base else None)
        window = (await self.profile(route, caller)).window
        return entry if window.source == "default" else {**entry, "context_length": window.window}

    def _said(self, route: Route) -> ModelOverrides:
        return NOTHING_SET if self._live is None else self._live.of(route)


def _with_beta(profile: ModelProfile, tokens: int) -> ModelProfile:
    """A model's profile for a request whose beta header gives it a window of so many tokens."""
    window = replace(profile.window, max_input_tokens=tokens, context_window=None)
    return ModelProfile(profile.name, window, profile.policy)


def _as_taught(route: Route, beta: tuple[str, int] | None) -> Route:
    """What a lesson is kept under: what is learned with a beta header says nothing of requests without it."""
    return route if beta is None else replace(route, upstream_model=f"{route.upstream_model} {beta[0]}")


def _window_fields(window: ModelWindow) -> Mapping[str, JsonValue]:
    fields = {
        "context_length": window.window,
        "max_input_tokens": window.max_input_tokens,
        "max_output_tokens": window.max_output_tokens,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _sighting(route: Route, window: ModelWindow, policy: CompactionPolicy) -> ModelObservation:
    return ModelObservation(
        route.provider, route.upstream_model, route.name, window, policy.threshold, policy.retention_tokens
    )
