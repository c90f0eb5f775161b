"""The road of one request, written once and in order: identity and budget, the fitting, upstream.

Between the edge (``server/endpoints/chat.py``), which brings a parsed request and carries the exchange away, and the
ports, behind which the world stands. Every rule is in ``core/``; this file only walks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from proxy.compaction.writer import Clock
from proxy.core.conversation.messages import ModelRequest, render_body, render_messages
from proxy.core.conversation.prefix import owner_of
from proxy.core.conversation.records import TurnRecord
from proxy.core.errors import UpstreamError
from proxy.core.events import ContextFull, Listener
from proxy.core.planning.budget import ModelProfile, budget_for
from proxy.core.planning.calibration import CalibrationKey
from proxy.core.ports import CalibrationStore, Caller, ModelCatalog, Upstream
from proxy.core.report import Report
from proxy.dialects.chat.reply import Reply
from proxy.pipeline.fit import BudgetFitter, Compacting, FittedRequest
from proxy.pipeline.identify import Identifier, Place, RequestContext
from proxy.pipeline.relay import Learn, PendingTurn
from proxy.pipeline.values import Controls, Exchange, ReadReply, Refused

Announce = Callable[[Report], None]


class Pipeline:
    """Takes ports only; holds no state of its own."""

    def __init__(
        self,
        *,
        upstream: Upstream,
        catalog: ModelCatalog,
        calibrations: CalibrationStore,
        identity: Identifier,
        fitting: BudgetFitter,
        emit: Listener = lambda _: None,
        clock: Clock,
        timer: Clock,
    ) -> None:
        self._upstream = upstream
        self._catalog = catalog
        self._calibrations = calibrations
        self._identity = identity
        self._fitting = fitting
        self._emit = emit
        self._clock = clock
        self._timer = timer

    async def run(
        self,
        request: ModelRequest,
        caller: Caller,
        controls: Controls,
        *,
        prepared: Announce = lambda _: None,
        compacting: Compacting = lambda _, __: None,
    ) -> Exchange | Refused:
        """Bring a request to its upstream.

        :param prepared: told what was done to the request, right before the upstream is asked
        :param compacting: told what is summarized while the client waits
        :raises ModelNotFound, TokenizerFailed: before anything could be said about the conversation
        """
        case = await self.understand(request, caller, controls)
        sent = await self._send(case, prepared, compacting)
        if isinstance(sent, Refused) or sent.reply.status < 400 or controls.mode == "off":
            return sent
        return await self._replay(case, sent, prepared, compacting)

    async def understand(
        self, request: ModelRequest, caller: Caller, controls: Controls, *, stored: Place | None = None
    ) -> RequestContext:
        """The first steps of the road: what is known of a request before anything is decided."""
        route = await self._upstream.resolve(request.model)
        profile = await self._catalog.profile(route, caller)
        return await self._identity.understand(request, caller, controls, route, profile, stored=stored)

    async def profile(self, request: ModelRequest, caller: Caller) -> ModelProfile:
        """Window and policy of the model that a request names.

        :raises ModelNotFound: nobody serves it
        """
        return await self._catalog.profile(await self._upstream.resolve(request.model), caller)

    async def _send(self, case: RequestContext, announce: Announce, compacting: Compacting) -> Exchange | Refused:
        """Plan, compact, assemble and forward one understood request."""
        fitted = await self._fitting.fit(case, compacting)
        if isinstance(fitted, Refused):
            return fitted
        if fitted.full:
            report = fitted.report
            self._emit(ContextFull(report.conversation, case.profile.name, report.tokens_after, report.limit))
        announce(fitted.report)
        try:
            reply = await self._upstream.send(
                case.route, self._body(case, fitted), case.caller, stream=case.request.stream
            )
        except UpstreamError as error:
            return Refused(error, fitted.report)
        summary = None if fitted.report.degraded else fitted.summary
        return Exchange(reply, self._turn(case, fitted.report), fitted.report, summary)

    async def _replay(
        self, case: RequestContext, sent: Exchange, announce: Announce, compacting: Compacting
    ) -> Exchange | Refused:
        """An upstream's context overflow before the first byte: learn the window, compact, send again, once."""
        try:
            body = b"".join([chunk async for chunk in sent.reply.body()])
        except UpstreamError as error:
            return Refused(error, sent.report)
        finally:
            await sent.reply.close()
        told = ReadReply(sent.reply.status, sent.reply.headers, body)
        profile = await self._catalog.learn(
            case.route,
            case.caller,
            case.profile,
            status=told.status,
            body=body,
            sent_tokens=sent.report.local_tokens,
            factor=case.measure.factor,
            asked_tokens=case.request.max_output_tokens,
        )
        if profile is None:
            return replace(sent, reply=told)
        budget = budget_for(profile, case.request.max_output_tokens, case.controls.retention)
        measure = replace(case.measure, budget=budget, factor=max(case.measure.factor, profile.density))
        again = replace(case, profile=profile, measure=measure, started=self._timer(), put_in_use=sent.summary)
        if not self._fitting.could_shrink(again):
            return replace(sent, reply=told)
        resent = await self._send(again, announce, compacting)
        note = _note(case.profile, profile)
        also = resent.report.warning
        return replace(resent, report=replace(resent.report, warning=f"{note}; {also}" if also else note))

    def _body(self, case: RequestContext, fitted: FittedRequest) -> bytes:
        """The bytes to send: the client's own where nothing is to be changed (promise 1)."""
        request, model = case.request, case.route.upstream_model
        if not fitted.changed and model == request.model:
            return request.body
        replaced: dict[str, bytes] = {}
        if fitted.changed:
            replaced["messages"] = render_messages(fitted.messages)
        if model != request.model:
            replaced["model"] = json.dumps(model).encode()
        return render_body(request.fields, replaced)

    def _turn(self, case: RequestContext, report: Report) -> PendingTurn:
        request, count = case.request, case.count
        record = TurnRecord(  # in the fields' order: see ``TurnRecord.answered``
            case.tenant,
            case.conversation,
            case.chain,
            case.memory.known,
            request.messages,
            count.messages,
            False,  # noqa: FBT003 - not complete
            request.model,
            report.action,
            report.tokens_before,
            report.tokens_after,
            report.summarized,
            self._clock(),
            count.scheme,
            {},
            owner_of(case.caller.fingerprint),
            case.controls.conversation or "",
        )
        key = case.measure.key
        lesson = None if key is None else self._lesson(key, request, report.local_tokens)
        return PendingTurn(record, case.route.upstream_model, lesson, self._fitting.ahead(case, report))

    def _lesson(self, key: CalibrationKey, request: ModelRequest, counted: int) -> Learn | None:
        """What becomes of the upstream's own count; that of images and files says nothing of its tokenizer."""
        if any(message.media for message in request.messages):
            return None

        async def learn(reply: Reply) -> None:
            told = reply.usage.get("prompt_tokens")
            if isinstance(told, int):
                await self._calibrations.learn(key, counted, told, self._clock())

        return learn


def _note(before: ModelProfile, after: ModelProfile) -> str:
    """What a replay tells the client in its warning."""
    if after.whole_reply and not before.whole_reply:
        return (
            f"the upstream's window of {after.window.window} tokens does not hold the input and the whole reply asked "
            "for; sent again with room for both"
        )
    return f"the upstream's window is smaller than known; learned {after.window.window} tokens and sent again"
