"""Has the provider write a summary, and sends it back in the provider's form to the model that wrote it.

The strategy ``native`` calls what ``ask_for`` returns. The messages go out as they are forwarded, up to the cut, with
the caller's own credential, and the answer is kept byte for byte (docs/adr/0031). If that is not possible, a reason
is raised, and the strategy has ``hybrid`` write the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.native import NativeAnswer, NativeForm, NativeFormat
from tidemark.core.conversation.summary import (
    PrefixSummary,
    SummaryText,
    inner_systems,
    render_summary,
    render_text,
    stands_natively,
)
from tidemark.core.errors import SummaryRejected
from tidemark.core.lessons import Lessons
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.cached_prefix import forwarded_with
from tidemark.core.planning.situation import Compact
from tidemark.core.ports import AskProvider, Clock, Route, TokenCounter, Upstream, UpstreamReply
from tidemark.core.report import Usage
from tidemark.pipeline.bound_thinking import LARGE_BYTES, BoundThinking, ThinkingGuard, with_beta
from tidemark.pipeline.masked_results import ResultMasks
from tidemark.pipeline.plain_replies import decode_whole, read_whole
from tidemark.pipeline.values import BufferedReply, RequestContext

REFUSALS = frozenset({400, 403, 404, 405, 422, 501})
"""Statuses that say that the upstream has no such compaction, unless it wrote a summary before."""
REFUSED_NOTICE = "the upstream refused its own summary, so the summary's text went out in its place"

_Value = TypeVar("_Value")
NoteUsage = Callable[[str, Route, Usage], None]
"""Takes the conversation, the route of the model that wrote, and the provider's counts."""


class NativeCompaction:
    """Asks providers for summaries. Its state is which of them refused, to write one and to take one back.

    :param timer: seconds, of any origin
    """

    def __init__(
        self, *, upstream: Upstream, guard: ThinkingGuard, counter: TokenCounter, masks: ResultMasks, timer: Clock
    ) -> None:
        self._upstream = upstream
        self._guard = guard
        self._counter = counter
        self._masks = masks
        self._writing_lessons: Lessons[tuple[str, str]] = Lessons(timer)
        """By address and model."""
        self._carrying_lessons: Lessons[tuple[bytes, ...]] = Lessons(timer)
        """By the summary."""
        self._note_usage: NoteUsage = lambda *_: None

    def note_usage(self, note: NoteUsage) -> None:
        """Give ``note`` what each answer is billed as, also one that is no summary."""
        self._note_usage = note

    def is_due(self, context: RequestContext) -> bool:
        """Return whether the provider is to be asked for the next summary of a request's conversation."""
        return context.profile.policy.strategy == "native" and not self._hindrance(context)

    def ask_for(self, context: RequestContext, planned: Compact) -> AskProvider | None:
        """Return what asks the provider for a planned summary; None if another strategy writes it."""
        if context.profile.policy.strategy != "native":
            return None
        return partial(self._ask, context, planned)

    def standing(self, context: RequestContext, summary: PrefixSummary | None) -> NativeForm | None:
        """Return a summary in its provider's own form, if it goes out in it; None if its text does."""
        summary = summary.base if summary is not None else None
        form, route = context.request.dialect.native_compaction, context.route
        if summary is None or summary.native is None or form is None or context.texts_only:
            return None
        if not stands_natively(summary, context.request.dialect.name, route.upstream_model):
            return None
        if form.stands_first and context.request.messages[0].is_system:
            return None
        if self._carrying_lessons.refuses(context.caller.fingerprint, summary.native.raws):
            return None
        return summary.native if form.may_carry(context.request.fields) else None

    def tokens(self, context: RequestContext, summary: PrefixSummary) -> int:
        """Return the tokens of a summary as it goes out, with all messages that masked results of it stand among."""
        masked = summary.masked
        if masked is not None:
            before = self.tokens(context, masked.base) if masked.base else 0
            return before + self._masks.tokens(context, masked, summary.covered, summary.version)
        native = self.standing(context, summary)
        if native is not None and native.tokens:
            return native.tokens
        return self._counter.count_message(render_summary(summary), context.route.upstream_model)

    def assembled(self, context: RequestContext, summary: PrefixSummary) -> Sequence[Message]:
        """Return the messages of a request with a summary in the place of the oldest ones."""
        native = self.standing(context, summary)
        standing = native.messages(summary.text) if native is not None else ()
        return assemble(
            context.request.messages,
            summary,
            context.count.left_out.count,
            standing=standing,
            replace_middle=context.request.dialect.replace_middle,
        )

    def carrying(self, context: RequestContext) -> RequestContext:
        """Return the context of a request that carries a provider's summary: it names the provider's beta."""
        form = context.request.dialect.native_compaction
        return context if form is None else _carrying(context, form)

    async def checked(self, context: RequestContext, reply: UpstreamReply) -> tuple[UpstreamReply, bool]:
        """Return a reply to a request with a provider's summary, and whether it is a refusal of that summary.

        :raises UpstreamError: the refusal broke off
        """
        form = context.request.dialect.native_compaction
        if form is None or reply.status not in REFUSALS:
            return reply, False
        data = await read_whole(reply)
        is_refused = form.is_refused(decode_whole(reply.headers, data) or data)
        return BufferedReply(reply.status, reply.headers, data), is_refused

    def note_refused(self, context: RequestContext, native: NativeForm | None) -> None:
        """Remember that an upstream does not take its summary back, so that the text goes out in its place."""
        if native is not None:
            self._carrying_lessons.note_refused(context.caller.fingerprint, native.raws)

    def _hindrance(self, context: RequestContext) -> str:
        """Return why the provider cannot be asked for a summary of a request; empty if it can."""
        request, route = context.request, context.route
        form = request.dialect.native_compaction
        if form is None:
            return f"no provider writes summaries in the dialect {request.dialect.name}"
        if not self._upstream.writes_summaries(route, request.dialect.name, context.caller):
            return f"{route.upstream_model!r} at this upstream is not known to write summaries"
        if self._writing_lessons.refuses(context.caller.fingerprint, _place(context)):
            return "the upstream refused it lately"
        return _hindrance_in(context, form)

    async def _ask(self, context: RequestContext, planned: Compact) -> SummaryText:
        """Return the provider's summary.

        :raises SummaryRejected: it cannot be asked, or wrote none
        :raises UpstreamError: there was no answer
        """
        form = context.request.dialect.native_compaction
        if (hindrance := self._hindrance(context)) or form is None:
            raise SummaryRejected(hindrance)
        if _has_inner_systems(context, planned):
            raise SummaryRejected("system messages stand among the turns, and no summary may repeat them")
        credential, place = context.caller.fingerprint, _place(context)
        context = _carrying(_of_one_answer(context), form)
        thinking = self._guard.of(context, self.standing(context, forwarded_with(planned, context.stored.summary)))
        body = await _offloaded(context, self._body, context, planned, form)
        reply = await self._send(context, form, body, thinking)
        data = await read_whole(reply)
        if reply.status >= min(REFUSALS):
            if reply.status in REFUSALS:
                self._writing_lessons.note_refused(credential, place)
            raise SummaryRejected(f"the upstream answered {reply.status}")
        answer = form.read(decode_whole(reply.headers, data) or data)
        self._note_usage(context.conversation, context.route, context.request.dialect.usage(answer.usage))
        if not answer.raws:
            raise SummaryRejected(answer.reason)
        self._writing_lessons.note_taken(credential, place)
        stands_for = b"" if thinking is None else await _offloaded(context, thinking.sent_digests)
        dialect, model = context.request.dialect.name, context.route.upstream_model
        native = NativeForm(dialect, model, answer.raws, answer.tokens, stands_for)
        self._check_space(context, planned, answer)
        return SummaryText(answer.text, "native", native=native)

    def _body(self, context: RequestContext, planned: Compact, form: NativeFormat) -> bytes:
        """Return the body of the question: what is forwarded of the conversation, up to the cut."""
        request, in_use = context.request, forwarded_with(planned, context.stored.summary)
        left_out = context.count.left_out.count
        places = [place for place, message in enumerate(request.messages) if not message.is_system]
        rest = len(request.messages) - places[planned.covered - left_out]
        whole = request.messages if in_use is None else self.assembled(context, in_use)
        body = request.dialect.body_with(request, whole[: len(whole) - rest], model=context.route.upstream_model)
        return form.asking(body, context.profile.window.max_output_tokens or 0)

    async def _send(
        self, context: RequestContext, form: NativeFormat, body: bytes, thinking: BoundThinking | None
    ) -> UpstreamReply:
        request, route, caller = context.request, context.route, context.caller
        if form.path != request.dialect.path:
            return await self._upstream.forward(route, "POST", form.path, body, caller)
        if thinking is not None:
            return await thinking.send(self._upstream, request, body, changed=True)
        return await self._upstream.send(route, body, caller, dialect=request.dialect, stream=False)

    def _check_space(self, context: RequestContext, planned: Compact, answer: NativeAnswer) -> None:
        """Make sure that the request fits with a summary whose length nobody could bound.

        :raises SummaryRejected: it does not
        """
        model, covered = context.route.upstream_model, planned.covered
        tokens = answer.tokens or self._counter.count_message(render_text(answer.text, covered), model)
        free = context.budget.limit - planned.rest_tokens
        if tokens > free:
            raise SummaryRejected(f"its summary has {tokens} tokens, and there is space for {max(free, 0)}")


def without_natives(context: RequestContext) -> RequestContext:
    """Return a context whose summaries go out as texts, those too that its request puts into use."""
    return replace(context, texts_only=True)


def _carrying(context: RequestContext, form: NativeFormat) -> RequestContext:
    return replace(context, caller=with_beta(context.caller, form.beta)) if form.beta else context


def _of_one_answer(context: RequestContext) -> RequestContext:
    """Return the context of a question that is not streamed, and whose answer no client reads."""
    request, caller = replace(context.request, stream=False), replace(context.caller, answered_with=())
    return replace(context, request=request, caller=caller)


def _has_inner_systems(context: RequestContext, planned: Compact) -> bool:
    """Return whether system messages stand among what a summary will stand for.

    The chain that names a summary leaves them out, so the summary would reveal them to other readers of equal turns.
    """
    inside = any(position <= planned.covered for position in inner_systems(context.request.messages).values())
    return inside or bool(planned.absorbed)


def _hindrance_in(context: RequestContext, form: NativeFormat) -> str:
    """Return what of a request itself does not let the provider write a summary; empty if nothing does."""
    if context.controls.by_hand:
        return "system text and tools are known in a client's request only"
    if context.stored.degraded:
        return "the store does not answer, and every request would ask anew"
    if form.stands_first and context.request.messages[0].is_system:
        return "a system message stands first"
    return "" if form.may_carry(context.request.fields) else "the request states what remains of a task budget"


async def _offloaded(context: RequestContext, work: Callable[..., _Value], *arguments: Any) -> _Value:
    """Run work, in a thread if the request is large."""
    if len(context.request.body) > LARGE_BYTES:
        return await asyncio.to_thread(work, *arguments)
    return work(*arguments)


def _place(context: RequestContext) -> tuple[str, str]:
    return context.route.base_url, context.route.upstream_model
