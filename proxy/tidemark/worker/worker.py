"""Makes the parts of one process, each when it is first used.

``app/application.py`` makes a worker for a server, and the commands make one for the few parts that they need. No part
knows the worker: each takes what it needs in its constructor. Features take it whole, and hand on what they need.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import cached_property, lru_cache, partial

from tidemark.codings.sealing import KEY_BYTES, Box
from tidemark.compaction.compactor import Compactor
from tidemark.compaction.sealing import TenantSeal
from tidemark.core.events import Event, TurnStored
from tidemark.core.ports import Authenticator
from tidemark.pipeline.bound_thinking import ThinkingGuard
from tidemark.pipeline.carried_objects import CarriedObjects
from tidemark.pipeline.command_text import mark_of
from tidemark.pipeline.commands import Commands
from tidemark.pipeline.continued_answers import ContinuedAnswers
from tidemark.pipeline.continuing import ContinuedRequests
from tidemark.pipeline.dropping_clients import DroppingClients
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.identify import Identifier
from tidemark.pipeline.kept_conversations import KeptConversations
from tidemark.pipeline.lossless import LosslessResults
from tidemark.pipeline.lost_histories import LostHistories
from tidemark.pipeline.masked_results import ResultMasks
from tidemark.pipeline.message_search import OriginalsSearch
from tidemark.pipeline.native_compaction import NativeCompaction
from tidemark.pipeline.prompt_check import PromptCheck
from tidemark.pipeline.recall import Recaller
from tidemark.pipeline.recall_indexes import RecallIndexes
from tidemark.pipeline.relay import Relay
from tidemark.pipeline.repeated_turns import RepeatedTurns
from tidemark.pipeline.sealed_compaction import SealedCompaction
from tidemark.pipeline.search_offers import SearchOffers
from tidemark.pipeline.search_rounds import RoundParts
from tidemark.pipeline.shared_accounts import SharedAccounts
from tidemark.pipeline.steps import Pipeline
from tidemark.pipeline.stored_history import StoredHistory, TurnRules
from tidemark.pipeline.unsummarized_messages import UnsummarizedReader
from tidemark.server.access import ConversationAccess
from tidemark.server.admission import Admission
from tidemark.server.auth import MAX_CACHED_CALLERS, PassthroughAuth
from tidemark.server.capabilities import errors_of
from tidemark.server.endpoints.destinations import Destinations
from tidemark.server.endpoints.forwarding import ForwardingEndpoint
from tidemark.server.keyed_auth import KeyedAuth
from tidemark.server.operator import OperatorAccess
from tidemark.server.own_tokens import PROVIDERS_KEY, OwnTokens
from tidemark.server.spools import SpoolBounds, Spools
from tidemark.store.answers import RedisAnswers
from tidemark.telemetry.logging import FactLog
from tidemark.telemetry.metrics import Metrics
from tidemark.telemetry.state import WorkerState, count_pool_threads
from tidemark.worker.dialects import RESPONSES
from tidemark.worker.stored import BYTES_A_MEGABYTE, StoreParts


class Worker(StoreParts):
    """The parts of one process. Its state is which of them exist by now, and what features have plugged in."""

    # The pipeline

    @cached_property
    def unsummarized(self) -> UnsummarizedReader:
        return UnsummarizedReader(self.store, self.request_heads, self.formats)

    @cached_property
    def accounts(self) -> SharedAccounts:
        return SharedAccounts(self.upstream, self.store.owners, self.settings.auth.shares_account)

    @cached_property
    def _recall_indexes(self) -> RecallIndexes:
        return RecallIndexes()

    @cached_property
    def recaller(self) -> Recaller:
        return Recaller(self.counter, self._recall_indexes)

    @cached_property
    def searches(self) -> SearchOffers:
        search = OriginalsSearch(self.counter, self._recall_indexes)
        return SearchOffers(RoundParts(self.upstream, self.counter, search, self.emit), time.monotonic)

    @cached_property
    def thinking(self) -> ThinkingGuard:
        return ThinkingGuard(time.perf_counter)

    @cached_property
    def masks(self) -> ResultMasks:
        return ResultMasks(self.counter)

    @cached_property
    def natives(self) -> NativeCompaction:
        return NativeCompaction(
            upstream=self.upstream,
            guard=self.thinking,
            counter=self.counter,
            masks=self.masks,
            timer=time.perf_counter,
        )

    @cached_property
    def identifier(self) -> Identifier:
        return Identifier(
            store=self.store,
            calibrations=self.calibrations,
            counter=self.counter,
            choose=self.summarizers.of,
            emit=self.emit,
            clock=time.time,
            timer=time.perf_counter,
            read_stored=self.formats.read,
            full=self.store.usage.full,
        )

    @cached_property
    def fitter(self) -> BudgetFitter:
        return BudgetFitter(
            counter=self.counter,
            compactor=self.immediate,
            preparation=self.preparation,
            recaller=self.recaller,
            timer=time.perf_counter,
            natives=self.natives,
            masks=self.masks,
            searches=self.searches,
        )

    @cached_property
    def seal(self) -> TenantSeal:
        return TenantSeal(self.secret)

    @cached_property
    def continued(self) -> ContinuedRequests:
        conversations = KeptConversations(self.store.kept_conversations, self.store.usage.full)
        return ContinuedRequests(
            upstream=self.upstream,
            responses=self.store.responses,
            store=self.store,
            unsummarized=self.unsummarized,
            formats=self.formats,
            seal=self.seal,
            answers=ContinuedAnswers(self.upstream, conversations, time.monotonic),
            conversations=conversations,
            accounts=self.accounts,
        )

    @cached_property
    def sealed(self) -> SealedCompaction | None:
        """Compacts for clients that carry their summary; None if no dialect with such items is served."""
        dialect, upstream = self.dialects.get(RESPONSES), self.upstream
        if dialect is None or dialect.responses is None:
            return None
        return SealedCompaction(
            dialect=dialect,
            continued=self.continued,
            upstream=upstream,
            catalog=self.catalog,
            counter=self.counter,
            compactor=Compactor(
                writer=self.writer, counter=self.counter, emit=_silent, clock=time.time, redactor=self.redactor
            ),
            seal=self.seal,
            clock=time.time,
            timer=time.perf_counter,
            accounts=self.accounts,
            compacts_itself=lambda route, caller: bool(upstream.keeps_responses(route, caller)),
        )

    @cached_property
    def history(self) -> StoredHistory:
        rules = self.settings.history
        return StoredHistory(
            upstream=self.upstream,
            store=self.store,
            turns=self.store.turns,
            heads=self.request_heads,
            unsummarized=self.unsummarized,
            leases=self.leases,
            formats=self.formats,
            rules=TurnRules(rules.on_conflict, rules.wait_seconds),
            lost=LostHistories(self.store, self.live),
            full=self.store.usage.full,
            redactor=self.redactor,
        )

    @cached_property
    def pipeline(self) -> Pipeline:
        mark_for = lru_cache(MAX_CACHED_CALLERS)(partial(mark_of, self.secret))  # every request asks for a mark
        return Pipeline(
            history=self.history,
            continued=self.continued,
            dropping=DroppingClients(self.upstream, self.store, self.formats),
            commands=Commands(fitter=self.fitter, store=self.store, mark_for=mark_for, emit=self.emit, clock=time.time),
            catalog=self.catalog,
            identifier=self.identifier,
            fitter=self.fitter,
            lossless=LosslessResults(self.counter),
            upstream=self.upstream,
            searches=self.searches,
            calibrations=self.calibrations,
            accounts=self.accounts,
            repeats=RepeatedTurns(self.answers, time.perf_counter),
            natives=self.natives,
            thinking=self.thinking,
            sealed=self.sealed,
            emit=self.emit,
            clock=time.time,
            timer=time.perf_counter,
        )

    @cached_property
    def answers(self) -> RedisAnswers:
        return RedisAnswers(self.store.ask, self.codec, redacts=self.redactor is not None)

    @cached_property
    def relay(self) -> Relay:
        emits_stored = self.log.includes(TurnStored)  # the metrics do not count turns
        return Relay(self.store, self.counter, self.emit, time.perf_counter, emits_stored=emits_stored)

    # The server

    @cached_property
    def log(self) -> FactLog:
        return FactLog()

    @cached_property
    def metrics(self) -> Metrics:
        return Metrics(self._shared_metrics, self._state)

    @cached_property
    def auth(self) -> Authenticator:
        has_keys, operator = self.settings.auth.mode == "keys", self.operator
        mend = "a key that 'tidemark keys create' made" if has_keys else PROVIDERS_KEY
        own_tokens = OwnTokens([operator.token, operator.auditor_token], mend)
        if has_keys:
            return KeyedAuth(self.keys, own_tokens)
        return PassthroughAuth(
            self.secret,
            identity_headers=self.settings.auth.identity_headers,
            forward_cookies=self.settings.server.forward_cookies,
            own_tokens=own_tokens,
        )

    @cached_property
    def operator(self) -> OperatorAccess:
        server, token = self.settings.server, self.settings.secrets.admin_token
        auditor = self.settings.secrets.auditor_token
        return OperatorAccess(
            server.host,
            token.reveal() if token else None,
            frozenset(server.trusted_proxies),
            auditor.reveal() if auditor else None,
        )

    @cached_property
    def access(self) -> ConversationAccess:
        return ConversationAccess(self.auth, self.operator)

    @cached_property
    def admission(self) -> Admission:
        limits = self.settings.limits
        formats = partial(errors_of, dialects=self.dialects)
        return Admission(limits.max_streams, limits.max_waiting, auth=self.auth, formats=formats, emit=self.emit)

    @cached_property
    def forwarding(self) -> ForwardingEndpoint:
        settings, server = self.settings, self.settings.server
        bounds = SpoolBounds(
            all_bytes=max(server.max_spools_mb, server.max_spool_mb) * BYTES_A_MEGABYTE,
            form_bytes=server.max_spool_mb * BYTES_A_MEGABYTE,
            file_first_bytes=server.max_file_first_mb * BYTES_A_MEGABYTE,
            seconds=server.form_seconds,
        )
        destinations = Destinations(
            self.upstream,
            PromptCheck(self.catalog, self.counter),
            reads_models=bool(settings.model_list) or not settings.upstream,
            spools=Spools(bounds, Box(os.urandom(KEY_BYTES)) if self.tenant_keys is not None else None),
        )
        return ForwardingEndpoint(
            destinations,
            objects=CarriedObjects(self.accounts),
            upstream=self.upstream,
            auth=self.auth,
            quotas=self.quotas,
            formats=self.dialects,
            max_body_bytes=self.max_body_bytes,
            emit=self.emit,
            timer=time.perf_counter,
        )

    @property
    def max_body_bytes(self) -> int:
        """The longest body that is read whole."""
        return self.settings.server.max_body_mb * BYTES_A_MEGABYTE

    def _state(self) -> WorkerState:
        return WorkerState(
            self.relay.streams,
            self.preparation.running(),
            self.writer.resting(),
            self.store.is_well,
            self.admission.requests,
            self.admission.waiting,
            len(asyncio.all_tasks()),
            count_pool_threads(),
        )

    async def settle(self) -> None:
        """Wait until the turns of all replies are recorded, and end what runs in the background."""
        await self.relay.settle()
        await self.preparation.aclose()
        await self.recaller.aclose()
        await self.quotas.aclose()

    async def aclose(self) -> None:
        """Write what waits, and close the connections; parts that were never used are left out."""
        parts = self.__dict__
        try:
            if "live" in parts:
                await self.live.aclose()
        finally:
            if "upstream" in parts:
                await self.upstream.aclose()
            if "store" in parts:
                await self.store.close()


def _silent(_: Event) -> None:
    """Emit nothing: there is no conversation whose summary it is."""
