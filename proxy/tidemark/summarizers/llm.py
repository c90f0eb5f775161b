"""Writes a summary with a model, through any upstream that serves it.

It is the strategy ``llm``, and the narrator of ``hybrid``. The text is the model's own, byte for byte, if it keeps to
its space. A transcript longer than the summarizer's window is split. Its pieces are summarized side by side, and then
their summaries are summarized. If the window has no space for several summaries, the pieces follow one another, each
with the summary so far.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.prose import GAP, count_statements, shorten_prose
from tidemark.core.conversation.request import CachedPrefix
from tidemark.core.conversation.summary import NARRATIVE, SummaryRecipe, SummaryText, Template
from tidemark.core.errors import (
    ModelNotFound,
    SummaryRejected,
    UpstreamBroken,
    UpstreamError,
    UpstreamTimedOut,
    UpstreamUnreachable,
)
from tidemark.core.frozen import frozen
from tidemark.core.ports import NO_CREDENTIAL, Caller, Route, SummaryTask, TextRequest, TokenCounter, Upstream
from tidemark.summarizers.answers import clean_answer, judge
from tidemark.summarizers.deadline import UNBOUNDED, Deadline, in_thread
from tidemark.summarizers.fitting import JOINT_TOKENS, LARGE_CHARS, is_large, room_in
from tidemark.summarizers.materials import MARK_TOKENS, Portion, portions_of, portions_of_parts, tokens_per_word
from tidemark.summarizers.prompts import (
    live_prompt,
    overhead_text,
    revision_prompt,
    system_prompt,
    template_named,
    told_words,
    user_prompt,
)
from tidemark.summarizers.transcript import utterances
from tidemark.summarizers.unsupported import unsupported_details

_Value = TypeVar("_Value")

AUTO = "auto"
SMALL_MODELS = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-4-5", "gemini": "gemini-2.5-flash"}
"""Fast and cheap models that every key of their provider may use."""
DEFAULT_WINDOW_TOKENS = 16_000
"""The summarizer's window if it is unknown: small enough for all but the smallest models."""
DEFAULT_PARALLEL = 4
WindowOf = Callable[[Route, Caller], Awaitable[int | None]]
"""Returns the window of a route's model, in tokens; None if it is unknown."""
_MARGIN = 0.05
"""Share of the window that stays free, since the provider counts with another tokenizer."""
_LEAST_PIECE_TOKENS = 128
_ANSWER_TOKENS = 24
"""Tokens that an answer may have beyond the bound. A text that is a little too long keeps its end so."""
_BOUND_SHARE = 4
"""A bound is at most this part of the window: earlier summary, answer and a piece share it."""
_PART_TOKENS = 20
"""Tokens of the text around the summary of a part."""
_MOST_REVISED = 20
"""Values that a model is asked about."""


class LlmSummarizer:
    """Asks a model; holds no state between tasks.

    :param template: a prompt template of ours by name, or the operator's own
    :param model: the summarizer's model; ``auto`` for the small model of the conversation's provider, or else the
        conversation's own
    :param window_tokens: the window of the summarizer's model, if ``window_of`` does not know it
    :param window_of: returns the window of a model
    :param cache_friendly: ask at the end of the live conversation, if the conversation's own model summarizes;
        ``auto`` is that model then
    :param parallel: the most pieces of one transcript that are summarized at once
    :param revise: ask once more if a text names what nobody said
    :raises ConfigError: there is no such template
    """

    def __init__(
        self,
        upstream: Upstream,
        counter: TokenCounter,
        *,
        template: str | Template = "general",
        model: str = AUTO,
        window_tokens: int = DEFAULT_WINDOW_TOKENS,
        window_of: WindowOf | None = None,
        cache_friendly: bool = False,
        parallel: int = DEFAULT_PARALLEL,
        revise: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._counter = counter
        self._template = template if isinstance(template, Template) else template_named(template)
        self._model = model
        self._window_tokens = window_tokens
        self._window_of = window_of
        self._cache_friendly = cache_friendly
        self._parallel = parallel
        self._revise = revise
        self._clock = clock

    @cached_property
    def recipe(self) -> SummaryRecipe:
        model = f"{self._model}+live" if self._cache_friendly else self._model
        model = f"{model}+revised" if self._revise else model
        return SummaryRecipe("llm", self._template.name, version=4, model=model)

    async def summarize(self, task: SummaryTask) -> SummaryText:
        """Ask for a summary: at the end of the live conversation, or for the pieces of the transcript.

        :raises SummaryRejected: an answer was no summary, or there was nothing to summarize
        :raises UpstreamError: there was no answer in time
        :raises SummaryOverdue: splitting the transcript took too long
        """
        task = replace(task, previous=_unmarked(task.previous))
        large = is_large(task)
        text = await self._whole_text(task, self._clock() + task.timeout_seconds, large=large)
        has_room = room_in(self._counter, task.model, task.max_tokens - JOINT_TOKENS)
        done = await _run(shorten_prose, text, has_room, large=large or len(text) > LARGE_CHARS)
        statements, left_out = done.statements, done.left_out
        if text.endswith(GAP):  # the provider cut it off: what it would have gone on with is one statement or more
            statements, left_out = (statements or count_statements(text)) + 1, left_out + 1
        return SummaryText(done.text, "llm", statements, left_out)

    async def _whole_text(self, task: SummaryTask, deadline: float, *, large: bool) -> str:
        """Return the model's text, whole."""
        words = await _run(self._words, task, large=large)
        if self._cache_friendly and (live := await self._live(task, words)) is not None:
            try:
                return await self._ask_live(task, live, deadline)
            except (UpstreamUnreachable, UpstreamTimedOut, UpstreamBroken):
                raise
            except (SummaryRejected, UpstreamError):
                pass  # the model refused or continued the conversation; quoted pieces may still work
        route = await self._route(task)
        caller = _caller(task, route)
        window = await self._window(task, route, caller)
        bound = max(1, min(task.max_tokens, window // _BOUND_SHARE))
        words = max(1, words * bound // task.max_tokens)
        call = _Call(task, route, caller, bound, words, self._piece_size(task, window, bound), deadline)
        reading = Deadline()
        pieces = await in_thread(reading, self._pieces, call, reading) if large else self._pieces(call)
        if not pieces:
            raise SummaryRejected("there is nothing to summarize")
        text = await self._summary_of(call, pieces)
        return await self._revised(call, pieces, text) if self._revise else text

    def _pieces(self, call: _Call, reading: Deadline = UNBOUNDED) -> list[Portion]:
        """Return the transcript in pieces; as one if it fits if no earlier summary stands beside it."""
        task = call.task
        if task.previous is None:
            whole = portions_of(task.messages, self._counter, task.model, call.size + call.bound, reading)
            if len(whole) <= 1:
                return whole
        return portions_of(task.messages, self._counter, task.model, call.size, reading)

    def _words(self, task: SummaryTask) -> int:
        """Return how many words the model may write."""
        ratio = tokens_per_word(task.messages, self._counter, task.model)
        return told_words(self._template, task.max_tokens, ratio)

    def _piece_size(self, task: SummaryTask, window: int, bound: int) -> int:
        """Return the tokens that a window has for a piece beside prompt, earlier summary and answer."""
        fixed = self._counter.count_text(overhead_text(self._template), task.model)
        return max(_LEAST_PIECE_TOKENS, int(window * (1 - _MARGIN)) - fixed - 2 * bound - _ANSWER_TOKENS)

    async def _summary_of(self, call: _Call, pieces: Sequence[Portion]) -> str:
        """Return the summary of all pieces: side by side, or each with the summary of those before it."""
        summary = call.task.previous or ""
        # Two pieces need two calls in turn, or two at once and a third; and two summaries must fit a piece.
        if self._parallel > 1 and len(pieces) > 2 and call.size >= 2 * (call.bound + _PART_TOKENS):
            return await self._side_by_side(call, pieces, summary)
        for piece in pieces:
            summary = await self._ask(call, piece, summary)
        return summary

    async def _side_by_side(self, call: _Call, pieces: Sequence[Portion], previous: str) -> str:
        """Return the summary of the summaries of pieces; the first one takes the earlier summary in."""
        places = asyncio.Semaphore(self._parallel)

        async def summarized(piece: Portion, previous: str) -> str:
            async with places:
                return await self._ask(call, piece, previous)

        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(summarized(piece, "" if number else previous))
                        for number, piece in enumerate(pieces)
                    ]
            except ExceptionGroup as errors:  # the first failure ends the others
                raise errors.exceptions[0] from errors
            texts = [self._within(task.result(), call) for task in tasks]
            if len(texts) == 1:
                return tasks[0].result()
            previous = ""
            pieces = portions_of_parts(texts, self._counter, call.task.model, call.size)

    def _within(self, text: str, call: _Call) -> str:
        """Return a text as another call reads it, so that the piece beside it fits the window."""
        return shorten_prose(text, room_in(self._counter, call.task.model, call.bound)).text

    async def _revised(self, call: _Call, pieces: Sequence[Portion], text: str) -> str:
        """Return another text if the first one names what nobody said; the first one if that is no better."""
        values = self._unsupported(call, text)
        if not values:
            return text
        material = pieces[0] if len(pieces) == 1 else Portion("", 0)
        follow_up = [{"role": "assistant", "content": text}, {"role": "user", "content": revision_prompt(values)}]
        try:
            revised = await self._ask(call, material, call.task.previous or "", follow_up)
        except (SummaryRejected, UpstreamError):
            return text
        return revised if len(self._unsupported(call, revised)) < len(values) else text

    def _unsupported(self, call: _Call, text: str) -> list[str]:
        details = unsupported_details(text, call.task.messages, call.task.previous or "")
        return [detail.text for detail in details][:_MOST_REVISED]

    async def _route(self, task: SummaryTask) -> Route:
        if self._model in ("", AUTO) and task.route is not None:
            return small_route(task.route)
        try:
            if self._model in ("", AUTO):
                return await self._upstream.resolve(task.model)
            return await self._upstream.resolve(self._model, by_operator=True)
        except ModelNotFound as error:
            raise SummaryRejected(f"the summarizer's model is not served: {error}") from error

    async def _window(self, task: SummaryTask, route: Route, caller: Caller) -> int:
        if self._window_of is None:
            return self._window_tokens
        if task.route is not None and route.name == task.route.name and not same_model(route, task.route):
            route = replace(route, name=route.upstream_model)  # a small model has a window of its own
        return await self._window_of(route, caller) or self._window_tokens

    async def _live(self, task: SummaryTask, words: int) -> _Live | None:
        """Return the conversation to continue, if its own model summarizes it and its window has the tokens."""
        prefix, route = task.live, task.route
        if prefix is None or route is None:
            return None
        if self._model not in ("", AUTO) and not same_model(await self._route(task), route):
            return None
        prompt = live_prompt(self._template, words, continued=task.previous is not None)
        tokens = await asyncio.to_thread(self._live_tokens, prefix, prompt, task.model)
        return _Live(prefix, route, prompt) if tokens <= prefix.limit else None

    def _live_tokens(self, prefix: CachedPrefix, prompt: str, model: str) -> int:
        count = self._counter.count_text
        fields = sum(count(raw.decode("utf-8", "replace"), model) for raw in prefix.fields.values())
        messages = sum(self._counter.count_message(message, model) for message in prefix.messages)
        return messages + fields + count(prompt, model) + MARK_TOKENS

    async def _ask_live(self, task: SummaryTask, live: _Live, deadline: float) -> str:
        answer = await self._upstream.complete(
            live.route,
            TextRequest(
                [{"role": "user", "content": live.prompt}],
                task.max_tokens,
                timeout_seconds=max(deadline - self._clock(), 0.0),
                cached_prefix=live.prefix,
                conversation=task.conversation,
                model=live.route.name,
            ),
            task.caller or NO_CREDENTIAL,
        )
        return await _run(self._accepted_live, answer, task, large=is_large(task))

    def _accepted_live(self, answer: str, task: SummaryTask) -> str:
        tokens = sum(self._counter.count_message(message, task.model) for message in task.messages)
        piece = Portion("\n".join(utterance.line for utterance in utterances(task.messages)), tokens)
        return self._accepted(answer, task, piece, task.previous or "")

    async def _ask(
        self, call: _Call, piece: Portion, summary: str, follow_up: Sequence[Mapping[str, JsonValue]] = ()
    ) -> str:
        """Return the model's summary of a piece, whole.

        :param follow_up: messages after the prompt: an answer, and what is wrong with it
        """
        seconds_left = call.deadline - self._clock()
        if seconds_left <= 0:
            raise UpstreamTimedOut("The summarizer did not answer in time.")
        previous = self._within(summary, call) or None
        prompt = user_prompt(self._template, piece.text, previous, parts=piece.is_parts)
        answer = await self._upstream.complete(
            call.route,
            TextRequest(
                [
                    {"role": "system", "content": system_prompt(self._template, call.words)},
                    {"role": "user", "content": prompt},
                    *follow_up,
                ],
                call.bound + _ANSWER_TOKENS,
                timeout_seconds=seconds_left,
                conversation=call.task.conversation,
                model=call.task.route.name if call.task.route else "",
            ),
            call.caller,
        )
        large = len(piece.text) + len(answer) > LARGE_CHARS
        material = replace(piece, tokens=piece.tokens or call.size)
        return await _run(self._accepted, answer, call.task, material, previous or "", large=large)

    def _accepted(self, answer: str, task: SummaryTask, piece: Portion, previous: str) -> str:
        """Return the answer's text.

        The piece is not counted again, because it may be as long as the window.

        :raises SummaryRejected: the answer is no summary
        """
        text, count = clean_answer(answer), self._counter.count_text
        judge(
            text,
            f"{previous}\n{piece.text}",
            text_tokens=count(text, task.model),
            material_tokens=piece.tokens + count(previous, task.model),
        )
        return text


def small_route(route: Route) -> Route:
    """Return the route to the small model of a route's provider (S3, open question 4), with the same credentials.

    The route stays as it is if the operator set the address, because that server may have other models.
    """
    small = SMALL_MODELS.get(route.provider)
    params = route.params or {}
    if small is None or params.get("api_base") or params.get("base_url"):
        return route
    return replace(route, upstream_model=small)


def same_model(route: Route, other: Route) -> bool:
    """Return whether two routes lead to one model of one upstream, and so to one prompt cache."""
    return (route.provider, route.base_url, route.upstream_model) == (
        other.provider,
        other.base_url,
        other.upstream_model,
    )


def _caller(task: SummaryTask, route: Route) -> Caller:
    """Return the caller that asks the model. A client's credential goes only where the client's request goes."""
    if task.caller is None or task.route is None:
        return task.caller or NO_CREDENTIAL
    is_same = (route.provider, route.base_url) == (task.route.provider, task.route.base_url)
    return task.caller if is_same else NO_CREDENTIAL


def _unmarked(previous: str | None) -> str | None:
    """Return an earlier summary as the model reads it, without the mark before its prose."""
    return f"\n{previous}\n".replace(f"\n{NARRATIVE}\n", "\n", 1).strip() if previous else previous


async def _run(work: Callable[..., _Value], *arguments: Any, large: bool) -> _Value:
    """Run work, in a thread if it is large, so that other streams do not wait."""
    return await asyncio.to_thread(work, *arguments) if large else work(*arguments)


@frozen
class _Live:
    """The live conversation, and the prompt at its end."""

    prefix: CachedPrefix
    route: Route
    prompt: str


@frozen
class _Call:
    """The values that all calls of one task share."""

    task: SummaryTask
    route: Route
    caller: Caller
    bound: int
    """The tokens that a summary should have at most."""
    words: int
    """The words that the model may write."""
    size: int
    """The most tokens of a piece."""
    deadline: float
    """Seconds by the clock."""
