"""Identity and budget of one request: whose it is, what is known of it, how large it is, how large it may be.

The first half of the road of a request, walked before anything is decided: one round trip to the store, and
the counting of what is new. ``pipeline/pipeline.py`` goes on from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from proxy.compaction.writer import ChooseSummarizer, Clock
from proxy.core.conversation.messages import Message, ModelRequest, digest_of
from proxy.core.conversation.prefix import ChainCache, PrefixChain, owner_of
from proxy.core.conversation.records import StoredState, response_conversation_id
from proxy.core.conversation.summary import NO_SYSTEMS, InnerSystems, PrefixSummary, SummaryRecipe, inner_systems
from proxy.core.errors import StoreError
from proxy.core.events import Listener, StoreDegraded
from proxy.core.models import model_id
from proxy.core.planning.budget import Budget, ModelProfile, budget_for
from proxy.core.planning.calibration import CalibratedBudget, calibration_key
from proxy.core.ports import CalibrationStore, Caller, ConversationStore, RequestCount, Route, TokenCounter
from proxy.core.report import Action, Report
from proxy.core.values import value
from proxy.pipeline.values import Controls


@value
class RequestContext:
    """A request whose identity and size are known."""

    request: ModelRequest
    controls: Controls
    caller: Caller
    route: Route
    profile: ModelProfile
    tenant: str
    chain: PrefixChain
    memory: StoredState
    count: RequestCount
    measure: CalibratedBudget
    started: float
    """By the timer: when the request was taken up."""
    conversation: str
    """The id that the client is told."""
    unclipped: RequestContext | None = None
    """The same as it came, where tool results were made smaller since."""
    put_in_use: PrefixSummary | None = None
    """The summary that an earlier try of this very request put into use."""

    @property
    def budget(self) -> Budget:
        """The marks, in the tokens that ``count`` and all summaries are in."""
        return self.measure.marks

    def report(
        self,
        action: Action,
        after: int,
        now: float,
        *,
        summary: PrefixSummary | None = None,
        warning: str | None = None,
        degraded: bool = False,
    ) -> Report:
        """What is done to the request.

        :param after: tokens of what is forwarded, counted locally
        :param now: by the timer
        :param summary: what stands for the oldest messages
        :param degraded: whether something could not be stored, beside what the memory says of the store
        """
        measure = self.measure
        return Report(  # in the fields' order: so many names would cost more than the fields themselves
            self.conversation,
            self.tenant,
            measure.budget.limit,
            action,
            measure.told(self.count.total),
            measure.told(after),
            after,
            summary.covered if summary else 0,
            summary.made_by if summary else None,
            warning or (FULL if self.memory.full else None),
            degraded or self.memory.degraded or self.memory.unwritable or self.memory.full,
            now - self.started,
        )


FULL = (
    "nothing more is stored for this credential: it has reached store.max_tenant_mb; forget conversations, or have the "
    "bound raised"
)
"""The warning of a request whose turn is not stored."""


def _systems_of(messages: Sequence[Message], said: int) -> InnerSystems:
    """``inner_systems``, without a look at the messages where most requests have none.

    :param said: how many of the messages are no system messages
    """
    others = len(messages) - said
    return inner_systems(messages) if others and others > messages[0].is_system else NO_SYSTEMS


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation stands in the store."""

    tenant: str
    chain: PrefixChain


def tenant_of(caller: Caller, route: Route) -> str:
    """Whose a request is: a credential together with an upstream (promise 8)."""
    return _tenant(caller.fingerprint, route.provider, route.base_url)


@lru_cache(maxsize=4096)
def _tenant(fingerprint: bytes, provider: str, base_url: str) -> str:
    return digest_of(fingerprint, provider.encode(), base_url.encode()).hex()


class Identifier:
    """Understands requests; of its own it remembers chains, which saves time only."""

    def __init__(
        self,
        *,
        store: ConversationStore,
        calibrations: CalibrationStore,
        counter: TokenCounter,
        choose: ChooseSummarizer,
        emit: Listener,
        clock: Clock,
        timer: Clock,
        full: Collection[str] = (),
    ) -> None:
        """Nothing is remembered yet.

        :param full: for whom nothing more is stored, by owner; looked at with each request
        """
        self._full = full
        self._store = store
        self._calibrations = calibrations
        self._counter = counter
        self._choose = choose
        self._emit = emit
        self._clock = clock
        self._timer = timer
        self._chains = ChainCache()

    async def understand(
        self,
        request: ModelRequest,
        caller: Caller,
        controls: Controls,
        route: Route,
        profile: ModelProfile,
        *,
        stored: Place | None = None,
    ) -> RequestContext:
        """Identity and budget: one round trip to the store, and the counting of what is new.

        :param stored: where the request's messages were read from, where no client sent them
        """
        started = self._timer()
        if stored is None:
            tenant = tenant_of(caller, route)
            chain = self._chains.of(tenant, request.messages, conversation=controls.conversation)
        else:
            tenant, chain = stored.tenant, stored.chain
        recipe = self._choose(profile, route).recipe
        systems = _systems_of(request.messages, len(chain.hashes))
        measure = CalibratedBudget(budget_for(profile, request.max_output_tokens, controls.retention))
        if profile.policy.calibrate:
            model = model_id(route.provider, route.upstream_model)
            key = calibration_key(caller.fingerprint, model, route.base_url, request.fields)
            recalling, measuring = self._recall(chain, recipe, systems), self._calibrations.calibration(key)
            memory, calibration = await asyncio.gather(recalling, measuring)
            factor = calibration.within(profile.policy.margin) if calibration.replies else profile.density
            measure = replace(measure, factor=factor, key=key)
        else:
            memory = await self._recall(chain, recipe, systems)
        if self._full and owner_of(caller.fingerprint) in self._full:
            memory = replace(memory, full=True)
        if memory.conversation is None or not memory.known:
            count = await self._counter.count(request, route.upstream_model)
        else:
            count = await self._counted(request, memory.conversation, memory.known, route.upstream_model)
        conversation = response_conversation_id(memory, chain, self._clock())
        return RequestContext(
            request, controls, caller, route, profile, tenant, chain, memory, count, measure, started, conversation
        )

    def _counted(self, request: ModelRequest, conversation: str, known: int, model: str) -> Awaitable[RequestCount]:
        """Count a request; of a long conversation, what another worker counted and stored is taken over."""

        async def stored(mark: str, first: int) -> list[tuple[Message, int]]:
            try:
                kept = await self._store.messages(conversation, start=first, stop=known)
            except StoreError as error:
                self._emit(StoreDegraded("messages", error.internal or str(error)))
                return []
            said = [message for message in request.messages if not message.is_system][first - 1 :]
            pairs = zip(said, kept, strict=False)
            return [(said, one.tokens) for said, one in pairs if one.scheme == mark and one.raw == said.raw]

        return self._counter.count(request, model, stored_count=known, stored=stored)

    async def _recall(self, chain: PrefixChain, recipe: SummaryRecipe, systems: InnerSystems) -> StoredState:
        try:
            return await self._store.recall(chain, recipe, systems)
        except StoreError as error:
            self._emit(StoreDegraded("recall", error.internal or str(error)))
            return StoredState(degraded=True)
