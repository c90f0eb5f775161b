"""The step ``continue_from_earlier``: gives a request that goes on from a response what came before.

It is the first step, and only dialects with stored responses have such requests. ``continuing.py`` resolves them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import CONVERSATION, EARLIER_RESPONSE
from tidemark.core.errors import InvalidRequest
from tidemark.core.ports import Caller, Upstream
from tidemark.pipeline.continued_answers import ContinuedAnswers
from tidemark.pipeline.continuing import ContinuedRequests
from tidemark.pipeline.sealed_compaction import SealedCompaction, check_triggers
from tidemark.pipeline.values import Result
from tidemark.pipeline.walk import Walk


class ContinueFromEarlier:
    """Resolves requests; most are none that go on from a response.

    :param sealed: answers requests for a compaction; None if no dialect with such requests is served
    :param run_rest: walks the steps that follow, for a request that has to be sent in another form
    """

    def __init__(
        self,
        continued: ContinuedRequests,
        sealed: SealedCompaction | None,
        upstream: Upstream,
        run_rest: Callable[[Walk], Awaitable[Result]],
    ) -> None:
        self._continued = continued
        self._sealed = sealed
        self._upstream = upstream
        self._run_rest = run_rest

    async def __call__(self, walk: Walk) -> Walk:
        """Resolve one request: with the messages after its summary, if they are enough, else with all earlier messages.

        :raises InvalidRequest: it asks for a compaction twice, or not with its last element, or its history is stored
        """
        request, caller = walk.request, walk.caller
        if request.dialect.responses is None:
            return walk
        if request.compaction_triggers and await self._is_answered_here(walk):
            await self._resolve_whole(walk, request, caller)
            return walk
        short = await self._continued.resolve_unsummarized(request, caller, walk.controls)
        if short is None:
            await self._resolve_whole(walk, request, caller)
            return walk
        walk.request, walk.place = short
        walk.caller = replace(caller, answered_with=_resolved_members(walk.request))
        walk.read_more = partial(self._resolve_whole, walk, request, caller)
        return walk

    async def _resolve_whole(self, walk: Walk, request: ModelRequest, caller: Caller) -> None:
        """Let the walk go on with all that led to a request."""
        whole = await self._continued.resolve(request, caller)
        if members := _resolved_members(whole):
            caller = replace(caller, answered_with=members)
        walk.request, walk.caller, walk.place = whole, caller, None
        if whole.continuation is not None:
            rest = Walk(whole, caller, walk.controls, walk.progress)
            walk.obligations.append(_CheckedAnswer(self._continued.answers, rest, self._run_rest))

    async def _is_answered_here(self, walk: Walk) -> bool:
        """Return whether a request for a compaction is answered by Tidemark."""
        request = walk.request
        check_triggers(request)
        route = await self._upstream.resolve(request.model)
        if self._sealed is None or self._sealed.compacts_itself(route, walk.caller):
            return False
        if walk.controls.history == "stored":
            raise InvalidRequest(
                "A 'compaction_trigger' is for a client that keeps its conversation itself, and this one's history is "
                "stored here. Leave the trigger out: Tidemark compacts the history by itself, and at once where "
                "X-Tidemark-Summarize is 'force'.",
                param=request.dialect.messages_member,
            )
        return True


class _CheckedAnswer:
    """Looks at the answer to a request that went on from a response.

    The request may have to be sent in another form.
    """

    def __init__(self, answers: ContinuedAnswers, walk: Walk, run_rest: Callable[[Walk], Awaitable[Result]]) -> None:
        self._answers = answers
        self._walk = walk
        self._run_rest = run_rest

    async def settle(self, result: Result) -> Result:
        """Return the result, or that of the other form."""
        walk = self._walk
        checked = await self._answers.checked(walk.request, result, walk.caller)
        if not isinstance(checked, ModelRequest):
            return checked
        walk.request = checked
        return await self._run_rest(walk)

    async def abandon(self) -> None:
        """Do nothing: nothing was begun."""


def _resolved_members(request: ModelRequest) -> tuple[tuple[str, JsonValue], ...]:
    """Return what the client's request names and the upstream's does not any more, as a response names it."""
    continuation = request.continuation
    if continuation is None:
        return ()
    if continuation.kept_turn is not None:
        return ((CONVERSATION, {"id": continuation.kept_turn.conversation.id}),)
    return ((EARLIER_RESPONSE, continuation.resolved),) if continuation.resolved else ()
