"""Builds the parts that use the store, and those that fit requests into their budgets.

``application.py`` connects them to routes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from tidemark.app.dialects import build_codec, build_dialects
from tidemark.app.parts import Parts
from tidemark.catalog.overrides import LiveOverrides
from tidemark.compaction.background import BackgroundCompaction
from tidemark.compaction.compactor import Compactor
from tidemark.compaction.immediate import ImmediateCompaction
from tidemark.compaction.storing import SummaryStorage
from tidemark.config import Settings, StoreSettings, TenantSettings, read_override
from tidemark.config.stored import check_stored, configured_values, read_setting, with_stored
from tidemark.core.conversation.request import Dialect
from tidemark.core.events import Listener
from tidemark.core.operator_settings import StoredValues
from tidemark.core.ports import DeletionHook, MemoryFlush
from tidemark.features.live_events.store import RedisLiveEvents
from tidemark.features.model_registry.registry import ModelRegistry
from tidemark.features.settings.operator_settings import OperatorSettings
from tidemark.features.settings.store import RedisSettings
from tidemark.features.summaries.previews import RedisPreviews
from tidemark.features.traffic.store import RedisTraffic
from tidemark.pipeline.bound_thinking import ThinkingGuard
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.identify import Identifier
from tidemark.pipeline.message_search import OriginalsSearch
from tidemark.pipeline.native_compaction import NativeCompaction
from tidemark.pipeline.recall import Recaller
from tidemark.pipeline.recall_indexes import RecallIndexes
from tidemark.pipeline.search_offers import SearchOffers
from tidemark.pipeline.search_rounds import RoundParts
from tidemark.pipeline.shared_accounts import SharedAccounts
from tidemark.pipeline.stored_tails import StoredTails
from tidemark.store.answers import RedisAnswers
from tidemark.store.calibrations import RedisCalibrations
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.leases import RedisLeases
from tidemark.store.lessons import RedisLearnedWindows
from tidemark.store.lifetimes import Lifetime, Lifetimes, lifetime
from tidemark.store.models import RedisModels
from tidemark.store.request_heads import RedisRequestHeads
from tidemark.store.summary_replacement import RedisSummaryReplacement

SECONDS_A_DAY = 86_400
BYTES_A_MEGABYTE = 1_048_576


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
        self.codec = codec = codec or build_codec(dialects.values())
        ttl_seconds = settings.store.ttl_days * SECONDS_A_DAY
        self.lifetimes = _lifetimes(settings)
        most, owner_days = settings.store.max_tenant_mb, settings.store.owner_days
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
            owner_seconds=None if owner_days is None else owner_days * SECONDS_A_DAY,
        )
        self.deletion_hooks: list[DeletionHook] = []
        """The hooks that delete a conversation's records outside the store."""
        self.request_heads = RedisRequestHeads(self.store.ask, codec)
        self.answers = RedisAnswers(self.store.ask, codec)
        self.replacement = RedisSummaryReplacement(
            self.store.ask, codec, ttl_seconds=ttl_seconds, lifetimes=self.lifetimes
        )
        self.previews = RedisPreviews(self.store.ask, codec)
        self.calibrations = RedisCalibrations(self.store.ask, codec, ttl_seconds=ttl_seconds)
        self.traffic = RedisTraffic(self.store.ask)
        self.live_events = RedisLiveEvents(self.store.ask, codec)
        models = RedisModels(self.store.ask, codec)
        self.live = LiveOverrides(models, time.time, emit)
        lessons = RedisLearnedWindows(self.store.ask, codec, ttl_seconds=ttl_seconds)
        self.parts = Parts(settings, warn, self.live, lessons, dialects, emit=emit)
        self.tails = StoredTails(self.store, self.request_heads, self.parts.formats)
        self.accounts = SharedAccounts(self.parts.upstream, self.store.owners, settings.auth.shares_account)
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
        self.searches = SearchOffers(RoundParts(parts.upstream, parts.counter, search, emit), time.monotonic)
        self.thinking = ThinkingGuard(time.perf_counter)
        self.natives = NativeCompaction(
            upstream=parts.upstream, guard=self.thinking, counter=parts.counter, timer=time.perf_counter
        )
        self.fitter = BudgetFitter(
            counter=parts.counter,
            compactor=self.immediate,
            preparation=self.preparation,
            recaller=self.recaller,
            timer=time.perf_counter,
            natives=self.natives,
            searches=self.searches,
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
