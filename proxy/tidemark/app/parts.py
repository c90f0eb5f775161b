"""Builds the parts that need neither store nor server: dialects, counter, upstream, catalog and summarizers.

``stored_parts.py`` adds those that use the store, and the command line uses these alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from tidemark.app.dialects import CHAT, build_dialects
from tidemark.catalog.catalog import Catalog
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.catalog.overrides import LiveOverrides
from tidemark.compaction.compactor import Compactor
from tidemark.compaction.writer import SummaryWriter
from tidemark.config import ModelEntry, Settings, WindowNote
from tidemark.core.conversation.request import Dialect
from tidemark.core.events import Event, Listener
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile
from tidemark.core.ports import Caller, ChooseSummarizer, LearnedWindowStore, Route, Summarizer
from tidemark.dialects.stored import StoredMessageReader
from tidemark.features.offline.service import OfflineService
from tidemark.summarizers.extractive import ExtractiveSummarizer
from tidemark.summarizers.hybrid import HybridSummarizer
from tidemark.summarizers.llm import AUTO, LlmSummarizer, small_route
from tidemark.summarizers.native import NativeSummarizer
from tidemark.summarizers.plain import PlainSummarizer
from tidemark.summarizers.receipts import ReceiptWriter
from tidemark.tokens import LocalTokenCounter
from tidemark.upstream.answer_bounds import MEGABYTE, AnswerBounds
from tidemark.upstream.upstream import LiteLLMUpstream
from tidemark.upstream.wire import WireLane


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
        self.counter = LocalTokenCounter(
            on_failure=settings.tokenizer.on_failure, on_warning=warn, counted_as=_counted_as(settings.model_list)
        )
        self.data = data = LiteLLMModelData()
        entries = [_entry(entry) for entry in settings.model_list]
        wire = WireLane(library=settings.transport.upstream == "library", bounds=_answer_bounds(settings))
        self.upstream = LiteLLMUpstream(
            entries,
            settings.upstream,
            wire=wire,
            data=data,
            by_litellm=settings.transport.lane == "litellm",
            write_chat=self.chat.write,
        )
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
        self._summarizers: dict[tuple[Any, ...], Summarizer] = {}
        """The summarizers by the values of a policy, of which a configuration has few."""

    async def _window_of(self, route: Route, caller: Caller) -> int | None:
        """Return the input window of a summarizer's model, unless it is only a default."""
        window = (await self.catalog.profile(route, caller)).window
        return None if window.source == "default" else min(window.window, window.max_input_tokens)

    def summarizer_for(self, profile: ModelProfile, route: Route) -> Summarizer:
        """Return the summarizer that a model's policy names."""
        policy = profile.policy
        key = (
            policy.strategy,
            policy.template,
            policy.summarizer_model,
            policy.summarizer_cache_friendly,
            policy.summarizer_parallel,
            policy.summarizer_revise,
        )
        if key not in self._summarizers:
            self._summarizers[key] = self.chosen_summarizer(profile, route)
        return self._summarizers[key]

    def chosen_summarizer(self, profile: ModelProfile, _: Route) -> Summarizer:
        """Return the summarizer of a policy that a person chose for one summary; no cache has it."""
        policy = profile.policy
        if policy.strategy == "extractive":
            return self.extractive
        narrator = LlmSummarizer(self.upstream, self.counter, window_of=self._window_of, **_options(policy))
        match policy.strategy:
            case "llm":
                return narrator
            case "hybrid":
                return HybridSummarizer(self.counter, narrator)
            case "native":
                return NativeSummarizer(HybridSummarizer(self.counter, narrator), self.extractive)
            case _:
                assert_never(policy.strategy)

    def offline_service(self) -> OfflineService:
        """Return the service that counts and compacts single requests."""
        return OfflineService(
            dialect=self.chat,
            counter=self.counter,
            catalog=self.catalog,
            upstream=self.upstream,
            compactor=self._offline_compactor(),
            name_summarizer=_summarizer_name,
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

        writer = self.summary_writer(self.summarizer_for, silent)
        return Compactor(writer=writer, counter=self.counter, emit=silent, clock=lambda: 0.0)


def _answer_bounds(settings: Settings) -> AnswerBounds:
    limits = settings.limits
    return AnswerBounds(limits.max_error_mb * MEGABYTE, limits.max_event_mb * MEGABYTE, limits.max_answer_mb * MEGABYTE)


def _options(policy: CompactionPolicy) -> dict[str, Any]:
    """Return the keyword arguments of ``LlmSummarizer`` for a policy."""
    return {
        "template": policy.template,
        "model": policy.summarizer_model,
        "cache_friendly": policy.summarizer_cache_friendly,
        "parallel": policy.summarizer_parallel,
        "revise": policy.summarizer_revise,
    }


def _summarizer_name(profile: ModelProfile, route: Route) -> str:
    """Return the model and the template that a policy's summarizer uses, as an error names them."""
    policy, model = profile.policy, profile.policy.summarizer_model
    if model in ("", AUTO):
        small = small_route(route)
        model = f"{small.provider}/{small.upstream_model}"
    template = policy.template if isinstance(policy.template, str) else policy.template.name
    return f"{model}, template {template}"


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


def _window(note: WindowNote) -> Mapping[str, Any]:
    return {
        "max_input_tokens": note.max_input_tokens,
        "max_output_tokens": note.max_output_tokens,
        "context_window": note.context_window,
        "beta_windows": dict(note.beta_windows),
    }
