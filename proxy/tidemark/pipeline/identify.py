"""The step ``identify`` finds a request's tenant, its stored conversation, its size and its budget.

It comes after the catalog and before any decision. It makes one round trip to the store, and counts
what is new. A request that repeats a message in other words takes one more (``changed_echoes.py``).

The caches hold pure results, prefix chains and budgets that an earlier request needed too, so that a turn hashes its
new messages only. Losing them costs time only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache

from tidemark.core.bounded import BoundedCache, SizedCache
from tidemark.core.conversation.keeping import strictest
from tidemark.core.conversation.messages import Message, digest_of
from tidemark.core.conversation.prefix import PrefixChain, chain_of, linked, owner_of, seed_of
from tidemark.core.conversation.records import ConversationState, Keep, response_conversation_id
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import NO_SYSTEMS, InnerSystems, SummaryRecipe, inner_systems
from tidemark.core.errors import InvalidRequest, StoreError
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.models import model_id
from tidemark.core.planning.budget import Budget, ModelProfile, budget_for
from tidemark.core.planning.calibration import CalibratedBudget, CalibrationKey, calibration_key
from tidemark.core.planning.situation import NOTHING_LEFT_OUT, EarlierMessagesNeeded, LeftOut
from tidemark.core.ports import (
    CalibrationStore,
    Caller,
    ChooseSummarizer,
    Clock,
    ConversationStore,
    ModelCatalog,
    RequestCount,
    Route,
    TokenCounter,
    Upstream,
)
from tidemark.pipeline.changed_echoes import EchoFinder, ReadStored, may_repeat
from tidemark.pipeline.prompt_watch import PromptWatch
from tidemark.pipeline.values import Controls, ConversationPlace, RequestContext
from tidemark.pipeline.walk import Walk

MAX_LINKS = 100_000
"""Of all cached chains together; each link takes about 110 bytes."""
SHORT = 16
"""A chain of fewer messages is made as quickly as it is looked up."""
_Chain = tuple[list[bytes], tuple[bytes, ...]]
"""Digests of the messages, and the hashes of the prefixes."""
MAX_BUDGETS = 256
"""Clients choose the length of the reply and the retention, so there must be a bound."""


def tenant_of(caller: Caller, route: Route) -> str:
    """Return the tenant of a request: a credential together with an upstream (promise 8)."""
    return _tenant(caller.fingerprint, route.provider, route.base_url)


@lru_cache(maxsize=4096)
def _tenant(fingerprint: bytes, provider: str, base_url: str) -> str:
    return digest_of(fingerprint, provider.encode(), base_url.encode()).hex()


class Identifier:
    """Builds the context of a request. Its only state is caches.

    :param read_stored: reads stored messages of any dialect; without it every changed answer begins a fork
    :param full: owners for whom nothing more is stored; read with each request
    """

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
        read_stored: ReadStored | None = None,
        full: Collection[str] = (),
    ) -> None:
        self._full = full
        self._echoes = None if read_stored is None else EchoFinder(store, read_stored)
        self._prompts = PromptWatch(store, read_stored, emit)
        self._store = store
        self._calibrations = calibrations
        self._counter = counter
        self._choose = choose
        self._emit = emit
        self._clock = clock
        self._timer = timer
        self._chains = ChainCache()
        self._budgets = BudgetCache()

    async def identify(
        self,
        request: ModelRequest,
        caller: Caller,
        controls: Controls,
        route: Route,
        profile: ModelProfile,
        *,
        place: ConversationPlace | None = None,
    ) -> RequestContext:
        """Look up what is stored of a request, and count what is new; ``Identify`` explains ``place``."""
        started = self._timer()
        if place is None:
            tenant = tenant_of(caller, route)
            chain = self._chains.of(tenant, request.messages, conversation=controls.conversation)
        else:
            tenant, chain = place.tenant, place.chain
        keep = _keep(request, controls, profile)
        recipe = self._choose(profile, route).recipe
        left_out = NOTHING_LEFT_OUT if place is None else place.left_out
        systems = _systems_of(request.messages, len(chain.hashes) - left_out.count)
        measure = CalibratedBudget(self._budgets.of(profile, request.max_output_tokens, controls.retention))
        recall = self._recall(chain, recipe, systems, keep)
        if profile.policy.calibrate:
            key = _calibration_key(request, caller, route)
            stored, calibration = await asyncio.gather(recall, self._calibrations.calibration(key))
            factor = calibration.within(profile.policy.margin) if calibration.replies else profile.density
            measure = replace(measure, factor=factor, key=key)
        else:
            stored = await recall
        if stored.diverges and place is None:
            stored = await self._with_changed_answers(stored, request, chain)
        if left_out.count:
            _check_left_out(left_out, stored, profile, measure)
        if self._full and owner_of(caller.fingerprint) in self._full:
            stored = replace(stored, full=True)
        prompt = await self._prompts.look(request, stored, chain, has_earlier=place is None)
        count = await self._count(request, stored, route.upstream_model, left_out.count)
        if left_out.count:
            count = replace(count, left_out=left_out)
        now = self._clock()
        conversation = response_conversation_id(stored, chain, now)
        idle_seconds = now - stored.updated_at if stored.updated_at else 0.0
        return RequestContext(  # in the fields' order
            request,
            controls,
            caller,
            route,
            profile,
            tenant,
            chain,
            stored,
            count,
            measure,
            started,
            conversation,
            prompt,
            idle_seconds=idle_seconds,
        )

    async def _recall(
        self, chain: PrefixChain, recipe: SummaryRecipe, systems: InnerSystems, keep: Keep
    ) -> ConversationState:
        """Read what is stored; a store that fails degrades the request, and does not refuse it.

        If nothing is to be stored, the request is handled as during an outage.
        """
        if keep == "none":
            return ConversationState(degraded=True)
        try:
            return await self._store.recall(chain, recipe, systems)
        except StoreError as error:
            self._emit(StoreDegraded("recall", error.internal or str(error)))
            return ConversationState(degraded=True)

    async def _with_changed_answers(
        self, stored: ConversationState, request: ModelRequest, chain: PrefixChain
    ) -> ConversationState:
        """Return the state of the conversation that the request repeats in other words, if there is one."""
        if self._echoes is None or not may_repeat(stored, len(chain)):
            return stored
        try:
            return await self._echoes.find(stored, request.messages, chain)
        except StoreError as error:
            self._emit(StoreDegraded("branches", error.internal or str(error)))
            return stored

    def _count(
        self, request: ModelRequest, stored: ConversationState, model: str, left_out: int
    ) -> Awaitable[RequestCount]:
        """Count a request; stored counts of a long conversation are taken over from the worker that made them."""
        conversation, stored_count = stored.conversation, stored.stored_count
        if conversation is None or not stored_count:
            return self._counter.count(request, model)

        async def stored_counts(mark: str, first: int) -> list[tuple[Message, int]]:
            try:
                records = await self._store.messages(conversation, start=left_out + first, stop=stored_count)
            except StoreError as error:
                self._emit(StoreDegraded("messages", error.internal or str(error)))
                return []
            messages = [message for message in request.messages if not message.is_system][first - 1 :]
            return [
                (message, record.tokens)
                for message, record in zip(messages, records, strict=False)
                if record.scheme == mark and record.raw == message.raw
            ]

        return self._counter.count(request, model, stored_count=stored_count - left_out, stored=stored_counts)


class Identify:
    """The step ``identify``: finds the model, what is stored of the conversation, and the size of a request."""

    def __init__(self, upstream: Upstream, catalog: ModelCatalog, identifier: Identifier) -> None:
        self._upstream = upstream
        self._catalog = catalog
        self._identifier = identifier

    async def __call__(self, walk: Walk) -> Walk:
        request, caller = walk.request, walk.caller
        route = await self._upstream.resolve(request.model)
        profile = await self._catalog.profile(route, caller)
        walk.context = await self._identifier.identify(request, caller, walk.controls, route, profile, place=walk.place)
        return walk

    async def identify(
        self, request: ModelRequest, caller: Caller, controls: Controls, *, place: ConversationPlace | None = None
    ) -> RequestContext:
        """Return what is known of a request that is not on its walk.

        :param place: where the request's messages were read from, if no client sent them
        """
        route = await self._upstream.resolve(request.model)
        profile = await self._catalog.profile(route, caller)
        return await self._identifier.identify(request, caller, controls, route, profile, place=place)

    async def profile(self, request: ModelRequest, caller: Caller) -> ModelProfile:
        """Return window and policy of the model that a request names.

        :raises ModelNotFound: nobody serves it
        """
        return await self._catalog.profile(await self._upstream.resolve(request.model), caller)


def _check_left_out(
    left_out: LeftOut, stored: ConversationState, profile: ModelProfile, measure: CalibratedBudget
) -> None:
    """Make sure that a request can do without its oldest messages.

    :raises EarlierMessagesNeeded: no summary of the model's stands for them, or something else reads them
    """
    summary, policy = stored.summary, profile.policy
    if (
        summary is None
        or summary.covered < left_out.count
        or summary.absorbed
        or summary.masked
        or stored.stored_count <= left_out.count
        or stored.diverges
        or policy.recall_tool
        or policy.strategy == "native"
        or measure.marks.max_recall
    ):
        raise EarlierMessagesNeeded


def _keep(request: ModelRequest, controls: Controls, profile: ModelProfile) -> Keep:
    """Return what is stored of a request.

    :raises InvalidRequest: it relies on what is not stored: its history, or a conversation of OpenAI's API
    """
    keep = strictest(controls.keep, profile.policy.keep)
    if keep == "all":
        return keep
    if controls.history == "stored":
        raise InvalidRequest(
            "Nothing of this model's messages is stored (store.keep), so history cannot be: send all messages, "
            "without X-Tidemark-History.",
            param="X-Tidemark-History",
        )
    continuation = request.continuation
    if continuation is not None and continuation.kept_turn is not None:
        raise InvalidRequest(
            "Nothing of this request is stored, so no conversation can be: send all items as 'input', without "
            "'conversation'.",
            param="conversation",
        )
    return keep


def _calibration_key(request: ModelRequest, caller: Caller, route: Route) -> CalibrationKey:
    """Return what the request's reply calibrates: a model at one address, with one set of tools."""
    tools = [request.fields[name] for name in request.dialect.tool_members if name in request.fields]
    model = model_id(route.provider, route.upstream_model)
    return calibration_key(caller.fingerprint, model, route.base_url, tools)


def _systems_of(messages: Sequence[Message], others: int) -> InnerSystems:
    """Return ``inner_systems``; it looks at the messages only if some are system messages, beside the first one.

    :param others: how many of the messages are no system messages
    """
    systems = len(messages) - others
    return inner_systems(messages) if systems and systems > messages[0].is_system else NO_SYSTEMS


class ChainCache:
    """Caches the digests and hashes of the newest chains by their beginning; the oldest go first.

    :param links: the most links of all chains together
    """

    def __init__(self, links: int = MAX_LINKS) -> None:
        self._chains: SizedCache[tuple[bytes, bytes], _Chain] = SizedCache(links, lambda chain: len(chain[0]))

    def of(self, tenant: str, messages: Sequence[Message], *, conversation: str | None = None) -> PrefixChain:
        """Return the same chain as ``chain_of``."""
        if len(messages) < SHORT:
            return chain_of(tenant, messages, conversation=conversation)
        digests = [message.digest for message in messages if not message.is_system]
        if len(digests) < SHORT:
            return chain_of(tenant, messages, conversation=conversation)
        seed = seed_of(tenant, conversation)
        key = (seed, digests[0])
        before, hashes = self._chains.take(key) or ([], ())
        equal = len(before)
        if digests[:equal] != before:
            equal = next(place for place, digest in enumerate(before) if digests[place : place + 1] != [digest])
        hashes = (*hashes[:equal], *linked(hashes[equal - 1] if equal else seed, digests[equal:]))
        self._chains.put(key, (digests, hashes))
        return PrefixChain(seed, hashes, conversation is not None)


class BudgetCache:
    """Caches budgets by profile, reply length and retention: most requests for a model ask for the same."""

    def __init__(self) -> None:
        self._budgets: BoundedCache[tuple[int, int | None, int | None], tuple[ModelProfile, Budget]] = BoundedCache(
            MAX_BUDGETS
        )
        """With the profile itself, so that its ``id`` is not given to another one."""

    def of(self, profile: ModelProfile, max_output_tokens: int | None, retention: int | None) -> Budget:
        """Return the same budget as ``budget_for``."""
        key = (id(profile), max_output_tokens, retention)
        cached = self._budgets.get(key)
        if cached is not None:
            return cached[1]
        budget = budget_for(profile, max_output_tokens, retention)
        self._budgets.put(key, (profile, budget))
        return budget
