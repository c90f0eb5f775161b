"""A summary written by a model, through whatever upstream serves it.

Beside ``extractive`` and ``hybrid``. A transcript that is longer than the summarizer's own window is taken in
pieces: each call gets the summary so far and the next piece. The bound is asked for and then enforced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.core.errors import ModelNotFound, SummaryRejected, UpstreamTimedOut
from proxy.core.messages import Message
from proxy.core.ports import Caller, Route, SummaryTask, TokenCounter, Upstream
from proxy.core.summary import SummaryRecipe
from proxy.summarizers.answers import cleaned, judge
from proxy.summarizers.fitting import cut_to_bound, is_large
from proxy.summarizers.prompts import overhead_text, system_prompt, template_named, user_prompt
from proxy.summarizers.transcript import utterances

AUTO = "auto"
SMALL_MODELS = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-4-5", "gemini": "gemini-2.5-flash"}
"""Fast and cheap, and served to every key of their provider."""
DEFAULT_WINDOW_TOKENS = 16_000
"""Where the summarizer's window is not known: small enough for all but the smallest models."""
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
        template: str = "general",
        model: str = AUTO,
        window_tokens: int = DEFAULT_WINDOW_TOKENS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is asked yet.

        :param template: name of a prompt template
        :param model: who summarizes; ``auto`` for the small model of the conversation's provider, else its own
        :param window_tokens: context window of the summarizer's model
        :raises ConfigError: there is no such template
        """
        self._upstream = upstream
        self._counter = counter
        self._template = template_named(template)
        self._model = model
        self._window_tokens = window_tokens
        self._clock = clock

    @property
    def recipe(self) -> SummaryRecipe:
        """What its summaries depend on."""
        return SummaryRecipe("llm", self._template.name, version=1, model=self._model)

    async def summarize(self, task: SummaryTask) -> str:
        """Ask for a summary, once for each piece of the transcript.

        :raises SummaryRejected: an answer was no summary, or there was nothing to summarize
        :raises UpstreamError: there was no answer in time
        """
        route = await self._route(task)
        bound = min(task.max_tokens, max(1, self._window_tokens // 3))
        call = _Call(task, route, _caller(task, route), bound, self._clock() + task.timeout_seconds)
        summary = task.previous or ""
        pieces = await asyncio.to_thread(self._pieces, call) if is_large(task) else self._pieces(call)
        if not pieces:
            raise SummaryRejected("there is nothing to summarize")
        for piece in pieces:
            summary = await self._ask(call, piece, summary)
        return summary

    async def _route(self, task: SummaryTask) -> Route:
        if self._model in ("", AUTO) and task.route is not None:
            return small_route(task.route)
        try:
            return await self._upstream.resolve(task.model if self._model in ("", AUTO) else self._model)
        except ModelNotFound as error:
            raise SummaryRejected(f"the summarizer's model is not served: {error}") from error

    async def _ask(self, call: _Call, piece: str, summary: str) -> str:
        left = call.deadline - self._clock()
        if left <= 0:
            raise UpstreamTimedOut("The summarizer did not answer in time.")
        previous = cut_to_bound(summary, call.task, self._counter, call.bound) or None
        answer = await self._upstream.complete(
            call.route,
            [
                {"role": "system", "content": system_prompt(self._template, call.bound)},
                {"role": "user", "content": user_prompt(self._template, piece, previous)},
            ],
            call.caller,
            max_tokens=call.bound,
            timeout_seconds=left,
        )
        text, material = cleaned(answer), f"{previous or ''}\n{piece}"
        model = call.task.model
        judge(
            text,
            material,
            text_tokens=self._counter.count_text(text, model),
            material_tokens=self._counter.count_text(material, model),
        )
        return cut_to_bound(text, call.task, self._counter, call.bound)

    def _pieces(self, call: _Call) -> list[str]:
        """The transcript in pieces that fit the window beside prompt, previous summary and answer."""
        count, model = self._counter.count_text, call.task.model
        fixed = count(overhead_text(self._template, call.bound), model) + 2 * call.bound
        room = max(_LEAST_PIECE_TOKENS, int(self._window_tokens * (1 - _MARGIN)) - fixed)
        pieces: list[str] = []
        gathered: list[str] = []
        left = room
        for line in self._lines(call.task.messages, model, room):
            cost = count(line, model) + 1
            if cost > left and gathered:
                pieces.append("\n".join(gathered))
                gathered, left = [], room
            gathered.append(line)
            left -= cost
        return [*pieces, "\n".join(gathered)] if gathered else pieces

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


def _caller(task: SummaryTask, route: Route) -> Caller:
    """Who asks. A client's credential goes nowhere but where the client's own request goes."""
    nobody = Caller(b"", ())
    if task.caller is None or task.route is None:
        return task.caller or nobody
    same = (route.provider, route.base_url) == (task.route.provider, task.route.base_url)
    return task.caller if same else nobody


@dataclass(frozen=True, slots=True)
class _Call:
    """What all calls of one task share."""

    task: SummaryTask
    route: Route
    caller: Caller
    bound: int
    """Tokens of each answer."""
    deadline: float
    """On the clock, seconds."""
