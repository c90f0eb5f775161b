"""Builds the adapters, the parts that use the store, and the parts that fit requests into their budgets.

``application.py`` connects them to routes, and the command line uses them without routes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, assert_never

from proxy.app.dialects import CHAT, build_codec, build_dialects
from proxy.catalog.catalog import Catalog
from proxy.catalog.litellm_data import LiteLLMModelData
from proxy.catalog.operator_settings import OperatorSettings
from proxy.catalog.overrides import LiveOverrides
from proxy.catalog.registry import ModelRegistry
from proxy.compaction.background import BackgroundCompaction
from proxy.compaction.compactor import Compactor
from proxy.compaction.immediate import ImmediateCompaction
from proxy.compaction.storing import SummaryStorage
from proxy.compaction.writer import SummaryWriter
from proxy.config import ModelEntry, Settings, StoreSettings, TenantSettings, WindowNote, read_override
from proxy.config.stored import check_stored, configured_values, read_setting, with_stored
from proxy.core.conversation.request import Dialect
from proxy.core.conversation.summary import Strategy, Template
from proxy.core.events import Event, Listener
from proxy.core.operator_settings import StoredValues
from proxy.core.planning.budget import ModelProfile
from proxy.core.ports import Caller, ChooseSummarizer, DeletionHook, LearnedWindowStore, MemoryFlush, Route, Summarizer
from proxy.dialects.stored import StoredMessageReader
from proxy.pipeline.fit import BudgetFitter
from proxy.pipeline.identify import Identifier
from proxy.pipeline.message_search import OriginalsSearch
from proxy.pipeline.offline import OfflineService
from proxy.pipeline.recall import Recaller
from proxy.pipeline.recall_indexes import RecallIndexes
from proxy.pipeline.search_offers import SearchOffers
from proxy.pipeline.search_rounds import RoundParts
from proxy.store.calibrations import RedisCalibrations
from proxy.store.codec import Codec
from proxy.store.conversations import RedisStore
from proxy.store.leases import RedisLeases
from proxy.store.lessons import RedisLearnedWindows
from proxy.store.lifetimes import Lifetime, Lifetimes, lifetime
from proxy.store.live_events import RedisLiveEvents
from proxy.store.models import RedisModels
from proxy.store.operator_settings import RedisSettings
from proxy.store.previews import RedisPreviews
from proxy.store.request_heads import RedisRequestHeads
from proxy.store.summary_replacement import RedisSummaryReplacement
from proxy.store.traffic import RedisTraffic
from proxy.summarizers.extractive import ExtractiveSummarizer
from proxy.summarizers.hybrid import HybridSummarizer
from proxy.summarizers.llm import LlmSummarizer
from proxy.summarizers.plain import PlainSummarizer
from proxy.summarizers.receipts import ReceiptWriter
from proxy.summarizers.request import CarriesRequest
from proxy.tokens import LocalTokenCounter
from proxy.upstream.upstream import LiteLLMUpstream
from proxy.upstream.wire import WireLane

SECONDS_A_DAY = 86_400
BYTES_A_MEGABYTE = 1_048_576


class Parts:
    """The parts that need neither store nor server, as the command line uses them.

    :param live: the registry's settings, where there is a store
    """

    def __init__(
        self,
        settings: Settings,
        warn: Callable[[str], None],
        live: LiveOverrides | None = None,
        learned_window_store: LearnedWindowStore | None = None,
        dialects: Mapping[str, Dialect] | None = None,
        *,
        emit: Listener = lambda _: None,
    ) -> None:
        self.settings = settings
        self.dialects = dialects or build_dialects()
        """By the path that each is served at."""
        self.chat = self.dialects[CHAT]
        """Also the format of requests that are counted offline, and of what the archive shows."""
        self.formats = StoredMessageReader(self.dialects.values())
        self.counter = LocalTokenCounter(on_failure=settings.tokenizer.on_failure, on_warning=warn)
        self.data = data = LiteLLMModelData()
        entries = [_entry(entry) for entry in settings.model_list]
        wire = WireLane(library=settings.transport.upstream == "library")
        self.upstream = LiteLLMUpstream(entries, settings.upstream, wire=wire, data=data, write_chat=self.chat.write)
        self.catalog = Catalog(
            self.upstream,
            policy_for=settings.policy_for,
            overrides={entry.name: _window(entry.window) for entry in settings.model_list},
            shipped={
                name: _window(model_default.window) for name, model_default in settings.model_defaults.patterns.items()
            },
            data=data,
            live=live,
            learned_window_store=learned_window_store,
            emit=emit,
        )
        self.extractive = ExtractiveSummarizer(self.counter)
        self._strategies: dict[tuple[Any, ...], Summarizer] = {}
        self._summarizers: dict[tuple[Strategy, str | Template, str, bool], Summarizer] = {}
        """The summarizers by the values of a policy, of which a configuration has few."""

    def strategy(self, strategy: Strategy, **options: Any) -> Summarizer:
        """Return the summarizer of a strategy, which is built once for equal options.

        :param options: keyword arguments of ``LlmSummarizer``
        """
        key = (strategy, *sorted(options.items()))
        if key not in self._strategies:
            self._strategies[key] = self._build(strategy, options)
        return self._strategies[key]

    def _build(self, strategy: Strategy, options: Mapping[str, Any]) -> Summarizer:
        if strategy == "extractive":
            return self.extractive
        narrator = LlmSummarizer(self.upstream, self.counter, window_of=self._window_of, **options)
        match strategy:
            case "llm":
                return CarriesRequest(self.counter, narrator)
            case "hybrid":
                return HybridSummarizer(self.counter, narrator)
            case _:
                assert_never(strategy)

    async def _window_of(self, route: Route, caller: Caller) -> int | None:
        """Return the input window of a summarizer's model, unless it is only a default."""
        window = (await self.catalog.profile(route, caller)).window
        return None if window.source == "default" else min(window.window, window.max_input_tokens)

    def summarizer_for(self, profile: ModelProfile, _: Route) -> Summarizer:
        """Return the summarizer that a model's policy names."""
        policy = profile.policy
        key = (policy.strategy, policy.template, policy.summarizer_model, policy.summarizer_cache_friendly)
        summarizer = self._summarizers.get(key)
        if summarizer is None:
            strategy, template, model, cache_friendly = key
            summarizer = self.strategy(strategy, template=template, model=model, cache_friendly=cache_friendly)
            self._summarizers[key] = summarizer
        return summarizer

    def chosen_summarizer(self, profile: ModelProfile, _: Route) -> Summarizer:
        """Return the summarizer of a policy that a person chose for one summary; no cache has it."""
        policy = profile.policy
        live = policy.summarizer_cache_friendly
        options = {"template": policy.template, "model": policy.summarizer_model, "cache_friendly": live}
        return self._build(policy.strategy, options)

    def offline_service(self) -> OfflineService:
        """Return the service that counts and compacts single requests."""
        return OfflineService(
            dialect=self.chat,
            counter=self.counter,
            catalog=self.catalog,
            upstream=self.upstream,
            compactor=self._offline_compactor(),
            timer=time.perf_counter,
        )

    def summary_writer(self, choose: ChooseSummarizer, emit: Listener) -> SummaryWriter:
        """Return a writer of summaries, whose breakers are its own."""
        return SummaryWriter(
            choose=choose,
            fallback=self.extractive,
            plain=PlainSummarizer(self.counter),
            counter=self.counter,
            emit=emit,
            timer=time.perf_counter,
            comparison=ReceiptWriter(),
        )

    def _offline_compactor(self) -> Compactor:
        """Return a compactor that stores nothing, emits nothing, and dates no summary."""

        def silent(_: Event) -> None:
            """Emit nothing."""

        writer = self.summary_writer(lambda profile, _: self.strategy(profile.policy.strategy), silent)
        return Compactor(writer=writer, counter=self.counter, emit=silent, clock=lambda: 0.0)


class StoredParts:
    """The parts that use the store, and the registry of models."""

    def __init__(
        self,
        settings: Settings,
        url: str,
        warn: Callable[[str], None],
        emit: Listener = lambda _: None,
        *,
        codec: Codec | None = None,
        dialects: Mapping[str, Dialect] | None = None,
    ) -> None:
        """Connect nothing yet.

        :param codec: packs every stored value, in place of the process's own (``build_codec``)
        :param dialects: the dialects by path, in place of the usual ones (``build_dialects``)
        """
        dialects = dialects or build_dialects()
        self.codec = codec = codec or build_codec(dialects.values(), settings.store)
        ttl_seconds = settings.store.ttl_days * SECONDS_A_DAY
        self.lifetimes = _lifetimes(settings)
        most = settings.store.max_tenant_mb
        self.store = RedisStore(
            url,
            codec,
            ttl_seconds=ttl_seconds,
            lifetimes=self.lifetimes,
            emit=emit,
            max_tenant_bytes=None if most is None else most * BYTES_A_MEGABYTE,
            library=settings.transport.store == "library",
            wait_replicas=settings.store.wait_replicas,
            wait_seconds=settings.store.wait_seconds,
        )
        self.deletion_hooks: list[DeletionHook] = []
        """The hooks that delete a conversation's records outside the store."""
        self.request_heads = RedisRequestHeads(self.store.ask, codec)
        self.replacement = RedisSummaryReplacement(
            self.store.ask, codec, ttl_seconds=ttl_seconds, lifetimes=self.lifetimes
        )
        self.previews = RedisPreviews(self.store.ask, codec)
        self.calibrations = RedisCalibrations(self.store.ask, codec, ttl_seconds=ttl_seconds)
        self.traffic = RedisTraffic(self.store.ask)
        self.live_events = RedisLiveEvents(self.store.ask, codec)
        models = RedisModels(self.store.ask, codec)
        self.live = LiveOverrides(models, time.time)
        lessons = RedisLearnedWindows(self.store.ask, codec, ttl_seconds=ttl_seconds)
        self.parts = Parts(settings, warn, self.live, lessons, dialects, emit=emit)
        self.registry = ModelRegistry(
            store=models,
            calibrations=self.calibrations,
            live=self.live,
            catalog=self.parts.catalog,
            upstream=self.parts.upstream,
            data=self.parts.data,
            read_field=read_override,
            clock=time.time,
        )
        self.operator_settings = OperatorSettings(
            RedisSettings(self.store.ask, codec),
            self.live,
            configured=configured_values(settings),
            read_setting=read_setting,
            check=partial(check_stored, settings),
            apply=self._apply,
        )

    def _apply(self, stored: StoredValues) -> None:
        """Let all following requests have the stored settings."""
        self.parts.catalog.policy_for = with_stored(self.parts.settings, stored).policy_for

    async def aclose(self) -> None:
        """Write what waits, and close all connections."""
        try:
            await self.live.aclose()
        finally:
            await self.parts.upstream.aclose()
            await self.store.close()


class Engine:
    """The parts that identify requests and fit them into their budgets."""

    def __init__(self, stored: StoredParts, emit: Listener, flush: MemoryFlush | None = None) -> None:
        parts, store, leases = stored.parts, stored.store, RedisLeases(stored.store.ask)
        self.emit = emit
        storage = SummaryStorage(store=store, replacement=stored.replacement, emit=emit, flush=flush)
        self.writer = writer = parts.summary_writer(parts.summarizer_for, emit)
        self.compactor = compactor = Compactor(
            writer=writer, counter=parts.counter, emit=emit, clock=time.time, storage=storage
        )
        self.immediate = ImmediateCompaction(compactor=compactor, writer=writer, store=store, leases=leases, emit=emit)
        self.preparation = BackgroundCompaction(
            compactor=compactor, writer=writer, store=store, leases=leases, emit=emit
        )
        indexes = RecallIndexes()
        self.recaller = Recaller(parts.counter, indexes)
        search = OriginalsSearch(parts.counter, indexes)
        self.searches = SearchOffers(RoundParts(parts.upstream, parts.counter, search, emit))
        self.fitter = BudgetFitter(
            counter=parts.counter,
            compactor=self.immediate,
            preparation=self.preparation,
            recaller=self.recaller,
            timer=time.perf_counter,
        )
        self.identifier = Identifier(
            store=store,
            calibrations=stored.calibrations,
            counter=parts.counter,
            choose=parts.summarizer_for,
            emit=emit,
            clock=time.time,
            timer=time.perf_counter,
            read_stored=parts.formats.read,
            full=store.usage.full,
        )


def _lifetimes(settings: Settings) -> Lifetimes:
    """Return the lifetimes of conversations: the general one, and those of tenants with settings of their own."""

    def lifetime_of(section: StoreSettings | TenantSettings) -> Lifetime:
        age = section.max_age_days
        return lifetime(section.ttl_days * SECONDS_A_DAY, None if age is None else age * SECONDS_A_DAY)

    own = {tenant: lifetime_of(section) for tenant, section in settings.tenants.items()}
    return Lifetimes(lifetime_of(settings.store), own)


def _entry(entry: ModelEntry) -> Mapping[str, Any]:
    """Return an entry in LiteLLM's own form."""
    return {
        "model_name": entry.name,
        "litellm_params": dict(entry.litellm_params),
        "model_info": dict(entry.model_info),
        "lane": entry.lane,
    }


def _window(note: WindowNote) -> Mapping[str, Any]:
    return {
        "max_input_tokens": note.max_input_tokens,
        "max_output_tokens": note.max_output_tokens,
        "context_window": note.context_window,
        "beta_windows": dict(note.beta_windows),
    }
