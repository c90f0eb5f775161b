"""Writes a summary with a model, through any upstream that serves it.

It is the strategy ``llm``, and the narrator of ``hybrid``. A transcript longer than the summarizer's window is split:
each call gets the summary so far and the next piece. The prompt asks for the bound, and the text is then cut to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from proxy.core.conversation.messages import Message
from proxy.core.conversation.request import CachedPrefix
from proxy.core.conversation.summary import SummaryRecipe, Template
from proxy.core.errors import (
    ModelNotFound,
    SummaryRejected,
    UpstreamBroken,
    UpstreamError,
    UpstreamTimedOut,
    UpstreamUnreachable,
)
from proxy.core.ports import NO_CREDENTIAL, Caller, Route, SummaryTask, TextRequest, TokenCounter, Upstream
from proxy.summarizers.answers import clean_answer, judge
from proxy.summarizers.deadline import UNBOUNDED, Deadline, in_thread
from proxy.summarizers.fitting import LARGE_CHARS, cut_to_bound, is_large
from proxy.summarizers.prompts import live_prompt, overhead_text, system_prompt, template_named, user_prompt
from proxy.summarizers.transcript import utterances

_Value = TypeVar("_Value")

AUTO = "auto"
SMALL_MODELS = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-4-5", "gemini": "gemini-2.5-flash"}
"""Fast and cheap models that every key of their provider may use."""
DEFAULT_WINDOW_TOKENS = 16_000
"""The summarizer's window where it is unknown: small enough for all but the smallest models."""
WindowOf = Callable[[Route, Caller], Awaitable[int | None]]
"""Returns the window of a route's model, in tokens; None where it is unknown."""
_MARGIN = 0.05
"""Share of the window that stays free, since the provider counts with another tokenizer."""
_LEAST_PIECE_TOKENS = 128
_MARK, _MARK_TOKENS = " […]", 4
_RESULT_SHARE = 0.25
"""Share of a piece for one tool result; a message of another speaker may fill a piece."""


class LlmSummarizer:
    """Asks a model; holds no state between tasks.

    :param template: a prompt template of ours by name, or the operator's own
    :param model: the summarizer's model; ``auto`` for the small model of the conversation's provider, or else the
        conversation's own
    :param window_tokens: the window of the summarizer's model, where ``window_of`` does not know it
    :param window_of: returns the window of a model
    :param cache_friendly: ask at the end of the live conversation, where the conversation's own model summarizes;
        ``auto`` is that model then
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._counter = counter
        self._template = template if isinstance(template, Template) else template_named(template)
        self._model = model
        self._window_tokens = window_tokens
        self._window_of = window_of
        self._cache_friendly = cache_friendly
        self._clock = clock

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """Return what its summaries depend on."""
        model = f"{self._model}+live" if self._cache_friendly else self._model
        return SummaryRecipe("llm", self._template.name, version=1, model=model)

    async def summarize(self, task: SummaryTask) -> str:
        """Ask for a summary: at the end of the live conversation, or once for each piece of the transcript.

        :raises SummaryRejected: an answer was no summary, or there was nothing to summarize
        :raises UpstreamError: there was no answer in time
        :raises SummaryOverdue: splitting the transcript took too long
        """
        deadline = self._clock() + task.timeout_seconds
        if self._cache_friendly and (live := await self._live(task)) is not None:
            try:
                return await self._ask_live(task, live, deadline)
            except (UpstreamUnreachable, UpstreamTimedOut, UpstreamBroken):
                raise
            except (SummaryRejected, UpstreamError):
                pass  # the model refused or continued the conversation; quoted pieces may still work
        route = await self._route(task)
        caller = _caller(task, route)
        window = await self._window(task, route, caller)
        bound = min(task.max_tokens, max(1, window // 3))
        call = _Call(task, route, caller, window, bound, deadline)
        summary = task.previous or ""
        reading = Deadline()
        pieces = await in_thread(reading, self._pieces, call, reading) if is_large(task) else self._pieces(call)
        if not pieces:
            raise SummaryRejected("there is nothing to summarize")
        for piece in pieces:
            summary = await self._ask(call, piece, summary)
        return summary

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
        if task.route is not None and route.name == task.route.name and not _same_model(route, task.route):
            route = replace(route, name=route.upstream_model)  # a small model has a window of its own
        return await self._window_of(route, caller) or self._window_tokens

    async def _live(self, task: SummaryTask) -> _Live | None:
        """Return the conversation to continue, where its own model summarizes it and its window has the tokens."""
        prefix, route = task.live, task.route
        if prefix is None or route is None:
            return None
        if self._model not in ("", AUTO) and not _same_model(await self._route(task), route):
            return None
        prompt = live_prompt(self._template, task.max_tokens, continued=task.previous is not None)
        tokens = await asyncio.to_thread(self._live_tokens, prefix, prompt, task.model)
        return _Live(prefix, route, prompt) if tokens <= prefix.limit else None

    def _live_tokens(self, prefix: CachedPrefix, prompt: str, model: str) -> int:
        count = self._counter.count_text
        fields = sum(count(raw.decode("utf-8", "replace"), model) for raw in prefix.fields.values())
        messages = sum(self._counter.count_message(message, model) for message in prefix.messages)
        return messages + fields + count(prompt, model) + _MARK_TOKENS

    async def _ask_live(self, task: SummaryTask, live: _Live, deadline: float) -> str:
        answer = await self._upstream.complete(
            live.route,
            TextRequest(
                [{"role": "user", "content": live.prompt}],
                task.max_tokens,
                timeout_seconds=max(deadline - self._clock(), 0.0),
                cached_prefix=live.prefix,
            ),
            task.caller or NO_CREDENTIAL,
        )
        return await _run(self._accepted_live, answer, task, large=is_large(task))

    def _accepted_live(self, answer: str, task: SummaryTask) -> str:
        tokens = sum(self._counter.count_message(message, task.model) for message in task.messages)
        piece = _Portion("\n".join(utterance.line for utterance in utterances(task.messages)), tokens)
        return self._accepted(answer, task, piece, task.previous or "", task.max_tokens)

    async def _ask(self, call: _Call, piece: _Portion, summary: str) -> str:
        seconds_left = call.deadline - self._clock()
        if seconds_left <= 0:
            raise UpstreamTimedOut("The summarizer did not answer in time.")
        previous = cut_to_bound(summary, call.task, self._counter, call.bound) or None
        answer = await self._upstream.complete(
            call.route,
            TextRequest(
                [
                    {"role": "system", "content": system_prompt(self._template, call.bound)},
                    {"role": "user", "content": user_prompt(self._template, piece.text, previous)},
                ],
                call.bound,
                timeout_seconds=seconds_left,
            ),
            call.caller,
        )
        large = len(piece.text) + len(answer) > LARGE_CHARS
        return await _run(self._accepted, answer, call.task, piece, previous or "", call.bound, large=large)

    def _accepted(self, answer: str, task: SummaryTask, piece: _Portion, previous: str, bound: int) -> str:
        """Return the answer's text within its bound.

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
        return cut_to_bound(text, task, self._counter, bound)

    def _pieces(self, call: _Call, reading: Deadline = UNBOUNDED) -> list[_Portion]:
        """Return the transcript in pieces that fit the window beside prompt, previous summary and answer."""
        count, model = self._counter.count_text, call.task.model
        fixed = count(overhead_text(self._template, call.bound), model) + 2 * call.bound
        size = max(_LEAST_PIECE_TOKENS, int(call.window * (1 - _MARGIN)) - fixed)
        pieces: list[_Portion] = []
        lines: list[str] = []
        free = size
        for line in self._lines(call.task.messages, model, size):
            reading.check()
            cost = count(line, model) + 1
            if cost > free and lines:
                pieces.append(_Portion("\n".join(lines), size - free))
                lines, free = [], size
            lines.append(line)
            free -= cost
        return [*pieces, _Portion("\n".join(lines), size - free)] if lines else pieces

    def _lines(self, messages: Sequence[Message], model: str, size: int) -> Iterator[str]:
        """Yield each utterance; one that is too long loses its end, and a mark says so."""
        for utterance in utterances(messages):
            line = utterance.line
            limit = int(size * _RESULT_SHARE) if utterance.speaker.startswith("Tool") else size - _MARK_TOKENS
            cut = self._counter.cut_text(line, model, limit)
            yield line if cut == line else f"{cut}{_MARK}"


def small_route(route: Route) -> Route:
    """Return the route to the small model of a route's provider (S3, open question 4), with the same credentials.

    The route stays as it is where the operator set the address, because that server may have other models.
    """
    small = SMALL_MODELS.get(route.provider)
    params = route.params or {}
    if small is None or params.get("api_base") or params.get("base_url"):
        return route
    return replace(route, upstream_model=small)


def _same_model(route: Route, other: Route) -> bool:
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


async def _run(work: Callable[..., _Value], *arguments: Any, large: bool) -> _Value:
    """Run work, in a thread where it is large, so that other streams do not wait."""
    return await asyncio.to_thread(work, *arguments) if large else work(*arguments)


@dataclass(frozen=True, slots=True)
class _Live:
    """The live conversation, and the prompt at its end."""

    prefix: CachedPrefix
    route: Route
    prompt: str


@dataclass(frozen=True, slots=True)
class _Portion:
    """A piece of the transcript for one call."""

    text: str
    tokens: int
    """Tokens with one for each line end, which is an upper estimate."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The values that all calls of one task share."""

    task: SummaryTask
    route: Route
    caller: Caller
    window: int
    """Tokens of the summarizer's window."""
    bound: int
    """The most tokens of each answer."""
    deadline: float
    """Seconds by the clock."""
