"""The order of a request: the list of its steps. Start reading here.

An endpoint (``server/endpoints/dialect.py``) parses a request, runs the pipeline and relays the reply
(``pipeline/relay.py``). Every rule is in ``core/``; this package performs the rules through ports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from typing import Any

from tidemark.core.conversation.request import ModelRequest
from tidemark.core.events import Listener
from tidemark.core.ports import CalibrationStore, Caller, Clock, ModelCatalog, Upstream
from tidemark.pipeline.bound_thinking import ThinkingGuard
from tidemark.pipeline.commands import Commands, TakeOutCommands
from tidemark.pipeline.continue_from_earlier import ContinueFromEarlier
from tidemark.pipeline.continuing import ContinuedRequests
from tidemark.pipeline.dropping_clients import DroppingClients
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.identify import Identifier, Identify
from tidemark.pipeline.lossless import LosslessResults, with_saved_tokens
from tidemark.pipeline.native_compaction import NativeCompaction
from tidemark.pipeline.repeated_turns import RepeatedTurns
from tidemark.pipeline.replay import Replay
from tidemark.pipeline.sealed_compaction import AnswerTrigger, SealedCompaction
from tidemark.pipeline.search_offers import SearchOffers
from tidemark.pipeline.sending import PendingTurns, RequestSender, Send
from tidemark.pipeline.shadow import Shadow
from tidemark.pipeline.shared_accounts import CheckAccounts, SharedAccounts
from tidemark.pipeline.stored_history import StoredHistory
from tidemark.pipeline.turn_taking import TakeTurn
from tidemark.pipeline.values import (
    NO_PROGRESS,
    Controls,
    ConversationPlace,
    Exchange,
    Progress,
    Refused,
    RequestContext,
    Result,
)
from tidemark.pipeline.walk import Step, Walk, send_again, walk_through


class Pipeline:
    """Takes requests through the steps. It has no state of its own."""

    def __init__(
        self,
        *,
        history: StoredHistory,
        continued: ContinuedRequests,
        dropping: DroppingClients,
        commands: Commands,
        catalog: ModelCatalog,
        identifier: Identifier,
        fitter: BudgetFitter,
        lossless: LosslessResults,
        upstream: Upstream,
        searches: SearchOffers,
        calibrations: CalibrationStore,
        accounts: SharedAccounts,
        repeats: RepeatedTurns,
        natives: NativeCompaction,
        thinking: ThinkingGuard,
        sealed: SealedCompaction | None = None,
        emit: Listener = lambda _: None,
        clock: Clock,
        timer: Clock,
    ) -> None:
        self._identify = Identify(upstream, catalog, identifier)
        turns = PendingTurns(upstream, fitter, calibrations, clock)
        send = Send(
            RequestSender(upstream, timer),
            turns,
            searches=searches,
            natives=natives,
            thinking=thinking,
            emit=emit,
            again=self._send_again,
        )
        take_out_commands = TakeOutCommands(commands, self._identify)
        self._sending: tuple[Step, ...] = (
            AnswerTrigger(sealed, turns, timer),  # a client that asks for a compaction gets one
            Fit(fitter, lossless),  # within the token budget
            send,
        )
        self.steps: tuple[Step, ...] = (
            ContinueFromEarlier(continued, sealed, upstream, self._run_rest),  # from a response, or items of one
            TakeTurn(history, repeats),  # of a conversation whose history is stored here
            dropping,  # what a client leaves out to stay within its own bound
            take_out_commands,  # /summarize and /context in the text of a message
            self._identify,  # the model, what is stored of the conversation, and the size
            CheckAccounts(accounts),  # the caller may reach the files that it names
            *self._sending,
            Replay(catalog, fitter, timer, self._send_again),  # smaller, after it was refused as too long
        )
        self._with_all_messages = self.steps.index(take_out_commands)
        """The step from which a request goes on once all its messages are read."""

    def run(
        self, request: ModelRequest, caller: Caller, controls: Controls, progress: Progress = NO_PROGRESS
    ) -> Coroutine[Any, Any, Result]:
        """Bring a request to its upstream, or answer it.

        :raises ModelNotFound, TokenizerFailed: before anything is known of the conversation
        :raises ConversationNotFound, ConversationConflict, StoreFull, StoreUnavailable: stored history cannot go on
        :raises InvalidRequest: nothing is in the request but commands and their answers, or it goes on from a response
            that nobody knows
        """
        walk = Walk(request, caller, controls, progress)
        return walk_through(self.steps, walk, resume=self._with_all_messages)

    def identify(
        self, request: ModelRequest, caller: Caller, controls: Controls, *, place: ConversationPlace | None = None
    ) -> Awaitable[RequestContext]:
        """Return what is known of a request that is not to be sent.

        :param place: where the request's messages were read from, if no client sent them
        """
        return self._identify.identify(request, caller, controls, place=place)

    def _run_rest(self, walk: Walk) -> Awaitable[Result]:
        return walk_through(self.steps[1:], walk, resume=self._with_all_messages - 1)

    def _send_again(self, context: RequestContext, progress: Progress) -> Awaitable[Exchange | Refused]:
        """Walk the steps from an identified request to its exchange once more, in another form of it."""
        return send_again(self._sending, context, progress)


class Fit:
    """The step ``fit`` of the list."""

    def __init__(self, fitter: BudgetFitter, lossless: LosslessResults) -> None:
        self._fitter = fitter
        self._lossless = lossless
        self._shadow = Shadow(fitter)

    async def __call__(self, walk: Walk) -> Walk | Result:
        if walk.context.profile.policy.tool_results == "lossless":
            walk.context = await self._lossless.of(walk.context)
        fitted = await self._fitter.fit(walk.context, walk.progress)
        if isinstance(fitted, Refused):
            return fitted
        if walk.context.unclipped is not None:
            fitted = replace(fitted, report=with_saved_tokens(walk.context, fitted))
        walk.fitted = await self._shadow.look(walk.context, fitted) if walk.context.is_shadow else fitted
        return walk
