"""A summary written by a model, through whatever upstream serves it.

Beside ``extractive`` and ``hybrid``. A transcript that is longer than the summarizer's own window is taken in
pieces: each call gets the summary so far and the next piece. The bound is asked for and then enforced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from proxy.core.conversation.messages import CachedPrefix, Message
from proxy.core.conversation.summary import SummaryRecipe, Template
from proxy.core.errors import (
    ModelNotFound,
    SummaryRejected,
    UpstreamBroken,
    UpstreamError,
    UpstreamTimedOut,
    UpstreamUnreachable,
)
from proxy.core.ports import Caller, Route, SummaryTask, TokenCounter, Upstream
from proxy.summarizers.answers import cleaned, judge
from proxy.summarizers.deadline import UNBOUNDED, Deadline, in_thread
from proxy.summarizers.fitting import LARGE_CHARS, cut_to_bound, is_large
from proxy.summarizers.prompts import live_prompt, overhead_text, system_prompt, template_named, user_prompt
from proxy.summarizers.transcript import utterances

_Done = TypeVar("_Done")

AUTO = "auto"
SMALL_MODELS = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-4-5", "gemini": "gemini-2.5-flash"}
"""Fast and cheap, and served to every key of their provider."""
DEFAULT_WINDOW_TOKENS = 16_000
"""Where the summarizer's window is not known: small enough for all but the smallest models."""
WindowOf = Callable[[Route, Caller], Awaitable[int | None]]
"""The window of a route's model, in tokens; None where nobody knows it."""
_MARGIN = 0.05
"""Of the window: another tokenizer than ours counts it."""
_LEAST_PIECE_TOKENS = 128
_MARK, _MARK_TOKENS = " […]", 4
_RESULT_SHARE = 0.25
"""Of a piece that one tool result may take; what anybody else says may take all of one."""


class LlmSummarizer:
    """Asks a model. Holds no state between tasks."""

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
        """Nothing is asked yet.

        :param template: one of our prompt templates by name, or a person's own
        :param model: who summarizes; ``auto`` for the small model of the conversation's provider, else its own
        :param window_tokens: context window of the summarizer's model, where nothing else tells it
        :param window_of: what tells it; where it is not known, ``window_tokens`` holds
        :param cache_friendly: ask at the end of the live conversation, where its own model summarizes; ``auto`` does
        :raises ConfigError: there is no such template
        """
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
        """What its summaries depend on."""
        model = f"{self._model}+live" if self._cache_friendly else self._model
        return SummaryRecipe("llm", self._template.name, version=1, model=model)

    async def summarize(self, task: SummaryTask) -> str:
        """Ask for a summary: at the end of the live conversation, or once for each piece of the transcript.

        :raises SummaryRejected: an answer was no summary, or there was nothing to summarize
        :raises UpstreamError: there was no answer in time
        :raises SummaryOverdue: the transcript took too long to be taken apart
        """
        deadline = self._clock() + task.timeout_seconds
        if self._cache_friendly and (live := await self._live(task)) is not None:
            try:
                return await self._ask_live(task, live, deadline)
            except (UpstreamUnreachable, UpstreamTimedOut, UpstreamBroken):
                raise
            except (SummaryRejected, UpstreamError):
                pass  # refused, or taken for a task to go on with: it may still be summarized piece by piece, quoted
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
            route = replace(route, name=route.upstream_model)  # a small model's window is not the conversation's
        return await self._window_of(route, caller) or self._window_tokens

    async def _live(self, task: SummaryTask) -> _Live | None:
        """What to continue, where the conversation's own model summarizes and all of it fits that model's window."""
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
        said = sum(self._counter.count_message(message, model) for message in prefix.messages)
        return said + fields + count(prompt, model) + _MARK_TOKENS

    async def _ask_live(self, task: SummaryTask, live: _Live, deadline: float) -> str:
        answer = await self._upstream.complete(
            live.route,
            [{"role": "user", "content": live.prompt}],
            task.caller or Caller(b"", ()),
            max_tokens=task.max_tokens,
            timeout_seconds=max(deadline - self._clock(), 0.0),
            live=live.prefix,
        )
        return await _apart(self._accepted_live, answer, task, large=is_large(task))

    def _accepted_live(self, answer: str, task: SummaryTask) -> str:
        tokens = sum(self._counter.count_message(message, task.model) for message in task.messages)
        piece = _Portion("\n".join(one.line for one in utterances(task.messages)), tokens)
        return self._accepted(answer, task, piece, task.previous or "", task.max_tokens)

    async def _ask(self, call: _Call, piece: _Portion, summary: str) -> str:
        left = call.deadline - self._clock()
        if left <= 0:
            raise UpstreamTimedOut("The summarizer did not answer in time.")
        previous = cut_to_bound(summary, call.task, self._counter, call.bound) or None
        answer = await self._upstream.complete(
            call.route,
            [
                {"role": "system", "content": system_prompt(self._template, call.bound)},
                {"role": "user", "content": user_prompt(self._template, piece.text, previous)},
            ],
            call.caller,
            max_tokens=call.bound,
            timeout_seconds=left,
        )
        large = len(piece.text) + len(answer) > LARGE_CHARS
        return await _apart(self._accepted, answer, call.task, piece, previous or "", call.bound, large=large)

    def _accepted(self, answer: str, task: SummaryTask, piece: _Portion, previous: str, bound: int) -> str:
        """The answer's text within its bound. The piece is not counted anew: it may be as long as the window.

        :raises SummaryRejected: it is no summary
        """
        text, count = cleaned(answer), self._counter.count_text
        judge(
            text,
            f"{previous}\n{piece.text}",
            text_tokens=count(text, task.model),
            material_tokens=piece.tokens + count(previous, task.model),
        )
        return cut_to_bound(text, task, self._counter, bound)

    def _pieces(self, call: _Call, reading: Deadline = UNBOUNDED) -> list[_Portion]:
        """The transcript in pieces that fit the window beside prompt, previous summary and answer."""
        count, model = self._counter.count_text, call.task.model
        fixed = count(overhead_text(self._template, call.bound), model) + 2 * call.bound
        room = max(_LEAST_PIECE_TOKENS, int(call.window * (1 - _MARGIN)) - fixed)
        pieces: list[_Portion] = []
        gathered: list[str] = []
        left = room
        for line in self._lines(call.task.messages, model, room):
            reading.check()
            cost = count(line, model) + 1
            if cost > left and gathered:
                pieces.append(_Portion("\n".join(gathered), room - left))
                gathered, left = [], room
            gathered.append(line)
            left -= cost
        return [*pieces, _Portion("\n".join(gathered), room - left)] if gathered else pieces

    def _lines(self, messages: Sequence[Message], model: str, room: int) -> Iterator[str]:
        """Each utterance; the end of one that is too long is left out, and a mark says so."""
        for utterance in utterances(messages):
            line = utterance.line
            most = int(room * _RESULT_SHARE) if utterance.speaker.startswith("Tool") else room - _MARK_TOKENS
            cut = self._counter.cut_text(line, model, most)
            yield line if cut == line else f"{cut}{_MARK}"


def small_route(route: Route) -> Route:
    """The way to the small model of a route's provider (S3, open question 4), with the same credentials.

    Only at the provider's own address: what serves there under a person's address nobody knows but the person.
    """
    small = SMALL_MODELS.get(route.provider)
    given = route.params or {}
    if small is None or given.get("api_base") or given.get("base_url"):
        return route
    return replace(route, upstream_model=small)


def _same_model(one: Route, other: Route) -> bool:
    """Whether two routes lead to the same model of the same upstream, and so to the same prompt cache."""
    return (one.provider, one.base_url, one.upstream_model) == (other.provider, other.base_url, other.upstream_model)


def _caller(task: SummaryTask, route: Route) -> Caller:
    """Who asks. A client's credential goes nowhere but where the client's own request goes."""
    nobody = Caller(b"", ())
    if task.caller is None or task.route is None:
        return task.caller or nobody
    same = (route.provider, route.base_url) == (task.route.provider, task.route.base_url)
    return task.caller if same else nobody


async def _apart(work: Callable[..., _Done], *arguments: Any, large: bool) -> _Done:
    """What is done, in a thread where it is large: other streams do not wait for it."""
    return await asyncio.to_thread(work, *arguments) if large else work(*arguments)


@dataclass(frozen=True, slots=True)
class _Live:
    """The conversation itself, and what is asked at its end."""

    prefix: CachedPrefix
    route: Route
    prompt: str


@dataclass(frozen=True, slots=True)
class _Portion:
    """A part of the transcript that goes into one call."""

    text: str
    tokens: int
    """One for each line end included, which may be less in truth."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What all calls of one task share."""

    task: SummaryTask
    route: Route
    caller: Caller
    window: int
    """Tokens of the summarizer's window."""
    bound: int
    """Tokens of each answer."""
    deadline: float
    """On the clock, seconds."""
