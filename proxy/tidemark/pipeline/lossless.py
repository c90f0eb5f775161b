"""Forwards tool results without what carries nothing, if ``tool_results: lossless`` says so (docs/adr/0038).

The step ``fit`` calls it before the plan, so that counts and marks are those of what is forwarded. A form follows from
the message and its call alone, so that every turn, worker and restart sends the same bytes, and nothing of it is
stored. Identity, store, console and searches have the client's own messages: ``RequestContext.unclipped``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tidemark.core.bounded import SizedCache
from tidemark.core.conversation.exact_results import calls_by_result, is_exact
from tidemark.core.conversation.lossless import LEAST_CHARS, squeezed
from tidemark.core.conversation.messages import JsonValue, Message, ToolCall
from tidemark.core.conversation.request import Dialect
from tidemark.core.ports import TokenCounter
from tidemark.core.report import Report
from tidemark.pipeline.originals import client_places
from tidemark.pipeline.values import FittedRequest, RequestContext

MOST_BYTES = 33_554_432
"""Of the cached results as they came and as they are forwarded, with their calls."""
THREAD_CHARS = 20_000
"""More new text than this is squeezed in a thread. It takes about half a millisecond."""
_Key = tuple[str, bytes]
"""The dialect and the result's digest."""
_Form = tuple[ToolCall, bytes, Message | None]
"""A call, the JSON of its result and its form. The digest does not cover all of the JSON. None if it stays as it is."""


class LosslessResults:
    """Rewrites tool results. Its state is a cache of pure results."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._forms: SizedCache[_Key, _Form] = SizedCache(MOST_BYTES, _size_of)

    async def of(self, context: RequestContext) -> RequestContext:
        """Return the context of the same request with the forms of its results; itself if there are none."""
        request = context.request
        if context.unclipped is not None or _must_stay(context):
            return context
        forms = await self._forms_of(request.messages, request.dialect)
        if not forms:
            return context
        shorter = replace(request, messages=tuple(forms.values()), billed_members={})
        counted = await self._counter.count(shorter, context.route.upstream_model)
        messages, tokens = list(request.messages), list(context.count.messages)
        for place, count in zip(forms, counted.messages, strict=True):
            messages[place], tokens[place] = forms[place], count
        return replace(
            context,
            request=replace(request, messages=tuple(messages)),
            count=replace(context.count, messages=tuple(tokens)),
            unclipped=context,
        )

    async def _forms_of(self, messages: Sequence[Message], dialect: Dialect) -> dict[int, Message]:
        """Return the results that have a form, by their places."""
        forms: dict[int, Message] = {}
        fresh: list[tuple[int, _Key, ToolCall]] = []
        for place, call in calls_by_result(messages):
            message = messages[place]
            if call is None or len(message.text) < LEAST_CHARS:
                continue
            key = (dialect.name, message.digest)
            cached = self._forms.get(key)
            if cached is None or cached[:2] != (call, message.raw):
                fresh.append((place, key, call))
            elif cached[2] is not None:
                forms[place] = cached[2]
        work = partial(_forms, [(messages[place], call) for place, _, call in fresh], dialect)
        is_long = sum(len(messages[place].text) for place, _, _ in fresh) > THREAD_CHARS
        results = await asyncio.to_thread(work) if is_long else work()
        for (place, key, call), form in zip(fresh, results, strict=True):
            self._forms.put(key, (call, messages[place].raw, form))
            if form is not None:
                forms[place] = form
        return dict(sorted(forms.items()))


def with_saved_tokens(context: RequestContext, fitted: FittedRequest) -> Report:
    """Return a request's report with the tokens that the forms of the forwarded results save.

    :param context: of the forwarded request
    """
    report, masked = fitted.report, fitted.summary.masked if fitted.summary else None
    if context.unclipped is None:
        return report
    before, after = context.unclipped.count.messages, context.count.messages
    behind = report.summarized - context.count.left_out.count if report.summarized else 0
    places = client_places(context.request.messages, len(context.chain) - context.count.left_out.count)
    first, lined = places[behind], [places[position] for position, _ in masked.lines] if masked else []
    saved = sum(before[first:]) - sum(after[first:]) - sum(before[place] - after[place] for place in lined)
    return replace(report, lossless_tokens=context.measure.provider_tokens(saved))


def _must_stay(context: RequestContext) -> bool:
    """Return whether a request goes out as it came, or the upstream has its earlier results as they came."""
    continuation = context.request.continuation
    return (
        context.mode in ("off", "shadow")
        or not context.profile.policy.enabled
        or bool(context.request.left_to_upstream)
        or (continuation is not None and continuation.received is not None)
    )


def _forms(results: Sequence[tuple[Message, ToolCall]], dialect: Dialect) -> list[Message | None]:
    """Return the form of each result; None if it stays as it is. Any thread may do this."""
    return [None if is_exact(message, call) else _form_of(message, dialect) for message, call in results]


def _form_of(message: Message, dialect: Dialect) -> Message | None:
    form = squeezed(message.text)
    if form is None:
        return None
    try:
        rewritten = dialect.replace_middle(message, 0, len(message.text), form.text)
        # Several texts would become one, and what a shell wrote to two streams as well.
        changes = _differences(json.loads(message.raw), json.loads(rewritten.raw))
    except RecursionError:  # members of the client's own may be nested so deep that only some readers can read them
        return None
    return rewritten if changes == [(message.text, form.text)] else None


def _differences(before: JsonValue, after: JsonValue) -> list[tuple[JsonValue, JsonValue]]:
    """Return the values in which two JSON values differ, however deep they are."""
    pairs: list[tuple[JsonValue, JsonValue]] = [(before, after)]
    changes: list[tuple[JsonValue, JsonValue]] = []
    while pairs:
        before, after = pairs.pop()
        if isinstance(before, dict) and isinstance(after, dict) and list(before) == list(after):
            before, after = list(before.values()), list(after.values())
        if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            pairs += zip(before, after, strict=True)
        elif before != after:
            changes.append((before, after))
    return changes


def _size_of(form: _Form) -> int:
    call, raw, message = form
    return len(call.name) + len(call.arguments) + len(raw) + (0 if message is None else len(message.raw))
