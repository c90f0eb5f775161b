"""Makes the parts that ask models, and those that use the store.

The first ones are dialects, the counter of tokens, and the upstreams; they need neither a store nor a server. The
others are conversations, the catalog of models, and summaries. ``worker.py`` adds those that serve requests.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypedDict

from tidemark.catalog.catalog import Catalog
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.catalog.overrides import LiveOverrides
from tidemark.catalog.prices import CACHE_LIFE, PRICE_KEYS
from tidemark.compaction.background import BackgroundCompaction
from tidemark.compaction.compactor import Compactor
from tidemark.compaction.immediate import ImmediateCompaction
from tidemark.compaction.storing import SummaryStorage
from tidemark.compaction.writer import SummaryWriter
from tidemark.config import ModelEntry, QuotaSettings, Settings, StoreSettings, TenantSettings, WindowNote
from tidemark.config.models import most_specific
from tidemark.config.signing import key_digests_of
from tidemark.core.bill import SavingOf
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.request import Dialect
from tidemark.core.events import Listener, Listeners
from tidemark.core.grants import Quota
from tidemark.core.ports import DeletionHook, MemoryFlush, Redactor
from tidemark.dialects.message_formats import MessageFormats
from tidemark.privacy.patterns import compiled_patterns, load_hook
from tidemark.privacy.redactor import TextRedactor
from tidemark.server.keyed_auth import KeyTable
from tidemark.server.quotas import Quotas
from tidemark.store.audit_log import AuditLog
from tidemark.store.calibrations import RedisCalibrations
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.encryption.cipher import TenantCipher
from tidemark.store.encryption.keyring import KeyRing
from tidemark.store.leases import RedisLeases
from tidemark.store.lessons import RedisLearnedWindows
from tidemark.store.lifetimes import Lifetime, Lifetimes, lifetime
from tidemark.store.models import RedisModels
from tidemark.store.quotas import RedisQuotas
from tidemark.store.request_heads import RedisRequestHeads
from tidemark.store.schema import CompressionSwitch, SchemaWatch
from tidemark.store.summary_replacement import RedisSummaryReplacement
from tidemark.store.watch import StoreWatch
from tidemark.summarizers.choosing import SummarizerChoice
from tidemark.summarizers.plain import PlainSummarizer
from tidemark.summarizers.receipts import ReceiptWriter
from tidemark.tokens import LocalTokenCounter
from tidemark.upstream.answer_bounds import MEGABYTE, AnswerBounds
from tidemark.upstream.upstream import LiteLLMUpstream
from tidemark.upstream.wire import WireLane
from tidemark.worker.dialects import CHAT, build_dialects
from tidemark.worker.encryption import cipher_of

SECONDS_A_DAY = 86_400
BYTES_A_MEGABYTE = 1_048_576
_OWNER = re.compile("[0-9a-f]{32}")


class ModelParts:
    """The parts that ask models. Its state is which of them exist by now.

    :param dialects: the dialects by path; None for the usual ones
    """

    def __init__(
        self, settings: Settings, warn: Callable[[str], None], dialects: Mapping[str, Dialect] | None = None
    ) -> None:
        self.settings = settings
        self.warn = warn
        self.dialects = dialects or build_dialects()
        """By the path that each is served at."""
        self.chat = self.dialects[CHAT]
        """Also the format of requests that are counted offline, and of what stored conversations are shown in."""
        self.formats = MessageFormats(self.dialects.values())

    @cached_property
    def counter(self) -> LocalTokenCounter:
        settings = self.settings
        return LocalTokenCounter(
            on_failure=settings.tokenizer.on_failure, on_warning=self.warn, counted_as=_counted_as(settings.model_list)
        )

    @cached_property
    def model_data(self) -> LiteLLMModelData:
        return LiteLLMModelData()

    @cached_property
    def upstream(self) -> LiteLLMUpstream:
        settings = self.settings
        limits = settings.limits
        bounds = AnswerBounds(
            limits.max_error_mb * MEGABYTE, limits.max_event_mb * MEGABYTE, limits.max_answer_mb * MEGABYTE
        )
        return LiteLLMUpstream(
            [_entry(entry) for entry in settings.model_list],
            settings.upstream,
            wire=WireLane(library=settings.transport.upstream == "library", bounds=bounds),
            data=self.model_data,
            by_litellm=settings.transport.lane == "litellm",
            write_chat=self.chat.write,
        )


def _entry(entry: ModelEntry) -> Mapping[str, Any]:
    """Return an entry in LiteLLM's own form."""
    return {
        "model_name": entry.name,
        "litellm_params": dict(entry.litellm_params),
        "model_info": dict(entry.model_info),
        "lane": entry.lane,
    }


def _counted_as(entries: Iterable[ModelEntry]) -> Mapping[str, str]:
    """Return what counts the tokens of models, by the upstream's names; the first entry of a name decides."""
    stated: dict[str, str] = {}
    for entry in entries:
        if entry.counted_as:
            for name in (entry.upstream_model, entry.upstream_model.partition("/")[2]):
                stated.setdefault(name, entry.counted_as)
    return stated


class ProcessOptions(TypedDict, total=False):
    """What a process has beside its settings, as ``StoreParts`` explains it."""

    store_url: str | None
    secret: bytes
    shared_metrics: Path | None
    codec: Codec | None
    dialects: Mapping[str, Dialect] | None


class StoreParts(ModelParts):
    """The parts that store conversations and their summaries; its state is also what features have plugged in.

    :param store_url: the store's address, with ``embedded`` resolved; None for a command that uses no store
    :param secret: the key of the HMAC that distinguishes tenants, the same in all workers and replicas
    :param shared_metrics: the folder that several workers write their counts to
    :param codec: packs every stored value; None for the usual one
    :param dialects: the dialects by path; None for the usual ones
    """

    def __init__(
        self,
        settings: Settings,
        warn: Callable[[str], None],
        *,
        store_url: str | None = None,
        secret: bytes = b"",
        shared_metrics: Path | None = None,
        codec: Codec | None = None,
        dialects: Mapping[str, Dialect] | None = None,
    ) -> None:
        key_digests_of(settings, secret)
        super().__init__(settings, warn, dialects)
        self.store_url = store_url or ""
        self.secret = secret
        self._codec = codec
        self.emit = Listeners()
        """Takes the events of all parts."""
        self.deletion_hooks: list[DeletionHook] = []
        """The hooks that delete a conversation's records outside the store's own."""
        self.flushes: list[MemoryFlush] = []
        """The consumers that hear which messages leave the context."""
        self.savings: list[SavingOf] = []
        """What says how much a turn saved: at most one feature bills turns."""
        self.stores: list[RedisStore] = []
        """Every connection to the store, whose schema is looked at."""
        self._shared_metrics = shared_metrics

    @cached_property
    def catalog(self) -> Catalog:
        settings, has_store = self.settings, bool(self.store_url)
        return Catalog(
            self.upstream,
            policy_for=settings.policy_for,
            overrides={entry.name: {**_prices(entry), **_window(entry.window)} for entry in settings.model_list},
            shipped={name: _window(default.window) for name, default in settings.model_defaults.patterns.items()},
            data=self.model_data,
            live=self.live if has_store else None,
            learned_window_store=self._learned_windows if has_store else None,
            emit=self.emit,
        )

    @cached_property
    def summarizers(self) -> SummarizerChoice:
        return SummarizerChoice(self.upstream, self.counter, self.catalog.known_window)

    def summary_writer(self, emit: Listener) -> SummaryWriter:
        """Return a new writer of summaries, whose breakers are its own."""
        return SummaryWriter(
            choose=self.summarizers.of,
            fallback=self.summarizers.extractive,
            plain=PlainSummarizer(self.counter),
            counter=self.counter,
            emit=emit,
            timer=time.perf_counter,
            write_receipt=ReceiptWriter().receipt,
        )

    # The store

    @cached_property
    def codec(self) -> Codec:
        """Packs every stored value of the process, and seals it if the configuration has a key."""
        # It compresses no message until the store's schema says that all workers can read it (``store/schema.py``).
        cipher = None if self._codec else cipher_of(self.settings, self.warn)
        if cipher is not None:
            cipher.keys.start()  # in every process, as an erased key must be forgotten in all of them
        return self._codec or Codec(cipher, is_message=self.formats.is_message, compress_messages=False)

    @cached_property
    def redactor(self) -> Redactor | None:
        """Changes texts before they are stored or summarized; None if nothing is configured."""
        privacy, patterns = self.settings.privacy, self.settings.redact
        if not patterns and privacy.hook is None:
            return None
        hook = None if privacy.hook is None else load_hook(privacy.hook)
        return TextRedactor(compiled_patterns(patterns), hook, seconds=privacy.timeout_seconds)

    @property
    def tenant_keys(self) -> KeyRing | None:
        """The keys of the tenants; None without encryption."""
        cipher = self.codec.cipher
        return cipher.keys if isinstance(cipher, TenantCipher) else None

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """How long conversations are stored: in general, and of tenants and models with settings of their own."""
        usual = _lifetime_of(self.settings.store)
        tenants = self.settings.tenants
        own = {tenant: _lifetime_of(section, usual.idle) for tenant, section in tenants.items()}
        idle_as_usual = {tenant for tenant, section in tenants.items() if not section.ttl_days}
        days = self.settings.ttl_days_by_model
        idles = {pattern: lifetime(ttl * SECONDS_A_DAY).idle for pattern, ttl in days.items()}
        if not idles:
            return Lifetimes(usual, own)
        return Lifetimes(usual, own, partial(most_specific, idles), idles.values(), idle_as_usual)

    @cached_property
    def ttl_seconds(self) -> float:
        """How long what is not used stays in the store."""
        return self.settings.store.ttl_days * SECONDS_A_DAY

    @cached_property
    def store(self) -> RedisStore:
        section = self.settings.store
        most = self.settings.limits.per_tenant.stored_mb or section.max_tenant_mb
        owner_days = section.owner_days
        store = RedisStore(
            self.store_url,
            self.codec,
            ttl_seconds=self.ttl_seconds,
            lifetimes=self.lifetimes,
            emit=self.emit,
            max_tenant_bytes=None if most is None else most * BYTES_A_MEGABYTE,
            own_tenant_bytes=self._own_tenant_bytes(),
            library=self.settings.transport.store == "library",
            wait_replicas=section.wait_replicas,
            wait_seconds=section.wait_seconds,
            owner_seconds=None if owner_days is None else owner_days * SECONDS_A_DAY,
            redactor=self.redactor,
        )
        self.stores.insert(0, store)
        return store

    @cached_property
    def keys(self) -> KeyTable:
        """The keys of the application; the feature of that name fills it."""
        return KeyTable(self.secret, time.time, time.monotonic)

    def owner_of_tenant(self, name: str) -> str:
        """Return the owner of what a tenant has.

        :param name: the tenant's name in its keys, or the owner's id itself
        """
        return name if _OWNER.fullmatch(name) else owner_of(self.keys.fingerprint_of(name))

    def _own_tenant_bytes(self) -> Mapping[str, int]:
        quotas = self.settings.quotas.items()
        return {
            self.owner_of_tenant(name): quota.stored_mb * BYTES_A_MEGABYTE for name, quota in quotas if quota.stored_mb
        }

    @cached_property
    def quotas(self) -> Quotas:
        return Quotas(
            RedisQuotas(self.store.ask),
            everybody=_quota(self.settings.limits.per_tenant),
            tenants={self.owner_of_tenant(name): _quota(own) for name, own in self.settings.quotas.items()},
            clock=time.time,
            emit=self.emit,
        )

    def other_store(self, ttl_seconds: float | None, timeout_seconds: float) -> RedisStore:
        """Return a new connection to the store, for work that no request waits for."""
        store = RedisStore(
            self.store_url,
            self.codec,
            ttl_seconds=ttl_seconds,
            recall_timeout_seconds=timeout_seconds,
            record_timeout_seconds=timeout_seconds,
            library=self.settings.transport.store == "library",
            redactor=self.redactor,
        )
        self.stores.append(store)
        return store

    @cached_property
    def request_heads(self) -> RedisRequestHeads:
        return RedisRequestHeads(self.store.ask, self.codec)

    @cached_property
    def calibrations(self) -> RedisCalibrations:
        return RedisCalibrations(self.store.ask, self.codec, ttl_seconds=self.ttl_seconds)

    @cached_property
    def replacement(self) -> RedisSummaryReplacement:
        return RedisSummaryReplacement(self.store.ask, self.codec, lifetimes=self.lifetimes, redactor=self.redactor)

    @cached_property
    def leases(self) -> RedisLeases:
        return RedisLeases(self.store.ask)

    @cached_property
    def models(self) -> RedisModels:
        return RedisModels(self.store.ask, self.codec)

    @cached_property
    def live(self) -> LiveOverrides:
        """What is set for models in the store, as this worker has read it."""
        return LiveOverrides(self.models, time.time, self.emit)

    @cached_property
    def _learned_windows(self) -> RedisLearnedWindows:
        return RedisLearnedWindows(self.store.ask, self.codec, ttl_seconds=self.ttl_seconds)

    @cached_property
    def schema(self) -> SchemaWatch:
        """Looks at the schema of every connection's store, and lets messages be compressed if all can read it."""
        mode, is_embedded = self.settings.store.compression, str(self.settings.store.url) == "embedded"
        raises = mode == "zstd" or (mode == "auto" and is_embedded)
        compression = CompressionSwitch(
            lambda enabled: self.codec.compress_messages(enabled=enabled and mode != "none"),
            self.store.raise_schema if raises else None,
        )
        return SchemaWatch([store.check_schema for store in self.stores], self.warn, compression.note)

    @cached_property
    def watch(self) -> StoreWatch:
        return StoreWatch(self.store.ping, self.store.server_facts, self.emit, self.warn)

    @cached_property
    def audit_log(self) -> AuditLog:
        return AuditLog(
            self.store.ask,
            self.secret,
            worker=f"{socket.gethostname()}-{os.getpid()}",
            clock=time.time,
            keep_days=self.settings.audit.keep_days,
        )

    # Compaction

    @cached_property
    def writer(self) -> SummaryWriter:
        return self.summary_writer(self.emit)

    @cached_property
    def compactor(self) -> Compactor:
        return Compactor(
            writer=self.writer,
            counter=self.counter,
            emit=self.emit,
            clock=time.time,
            storage=SummaryStorage(
                store=self.store, replace_stored=self.replacement.replace, emit=self.emit, flushes=self.flushes
            ),
            redactor=self.redactor,
        )

    @cached_property
    def immediate(self) -> ImmediateCompaction:
        return ImmediateCompaction(
            compactor=self.compactor, writer=self.writer, store=self.store, leases=self.leases, emit=self.emit
        )

    @cached_property
    def preparation(self) -> BackgroundCompaction:
        return BackgroundCompaction(
            compactor=self.compactor, writer=self.writer, store=self.store, leases=self.leases, emit=self.emit
        )


def _quota(section: QuotaSettings) -> Quota:
    return Quota(section.requests_per_minute, section.tokens_per_day, section.concurrent)


def _lifetime_of(section: StoreSettings | TenantSettings, usual_idle: int = 0) -> Lifetime:
    age = section.max_age_days
    return lifetime(section.ttl_days * SECONDS_A_DAY or usual_idle, None if age is None else age * SECONDS_A_DAY)


def _prices(entry: ModelEntry) -> Mapping[str, Any]:
    return {key: value for key, value in entry.model_info.items() if key in (*PRICE_KEYS, CACHE_LIFE)}


def _window(note: WindowNote) -> Mapping[str, Any]:
    return {
        "max_input_tokens": note.max_input_tokens,
        "max_output_tokens": note.max_output_tokens,
        "context_window": note.context_window,
        "beta_windows": dict(note.beta_windows),
    }
