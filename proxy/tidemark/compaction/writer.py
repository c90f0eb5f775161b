"""Ask a summarizer for a text. Heed its breaker, bound its time, check its text and cut it to its bound.

``compaction/compactor.py`` calls this and makes a record of the text. The strategies write texts; this module decides
whether a text can be a summary.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath

from tidemark.compaction.lost_summaries import LostSummaries
from tidemark.compaction.order import CompactionOrder, NotSummarized
from tidemark.core.bounded import BoundedCache
from tidemark.core.breaker import CLOSED, Breaker
from tidemark.core.conversation.prose import shorten_prose
from tidemark.core.conversation.request import CachedPrefix
from tidemark.core.conversation.summary import SummaryText, render_text
from tidemark.core.errors import SummaryOverdue, SummaryRejected, TidemarkError
from tidemark.core.events import BreakerChanged, Listener, SummaryFailed
from tidemark.core.planning.cached_prefix import cached_prefix
from tidemark.core.ports import (
    ChooseSummarizer,
    Clock,
    Summarizer,
    SummaryTask,
    TokenCounter,
    WriteReceipt,
)
from tidemark.core.receipt import Receipt

_LATE = "the summarizer did not answer in time"
_FAIR_SHARE = 0.4
"""Share of the summarizer's timeout. One that got less time and did not answer has not failed; the default wait is
half of the timeout."""
AUTO = "auto"
"""The model of a recipe that follows the conversation's model."""
_MAX_FRAMES = 4
"""Calls that are logged of an unexpected exception, the innermost last."""
_MAX_BREAKERS = 1024
"""Breakers that are remembered; far fewer failing summarizers are in use at once."""


class SummaryWriter:
    """Writes the texts of summaries.

    The mutable state is which summaries were lost, and the breakers of summarizers that failed lately. Each strategy,
    upstream and credential has its own, so that one client's bad key does not stop the summarizer for the others
    (promise 8).

    :param fallback: writes if the chosen strategy failed
    :param plain: writes if even reading took too long
    """

    def __init__(
        self,
        *,
        choose: ChooseSummarizer,
        fallback: Summarizer,
        plain: Summarizer,
        counter: TokenCounter,
        emit: Listener,
        timer: Clock,
        write_receipt: WriteReceipt,
    ) -> None:
        self.choose = choose
        self.fallback = fallback
        self.plain = plain
        self.timer = timer
        self._write_receipt = write_receipt
        self._counter = counter
        self._emit = emit
        self._breakers: BoundedCache[_BreakerKey, Breaker] = BoundedCache(_MAX_BREAKERS)
        self._lost = LostSummaries()

    def summarizer_for(self, order: CompactionOrder) -> Summarizer:
        """Return the summarizer of an order; the deterministic one if nothing can be stored."""
        return self.fallback if order.degraded else self.choose(order.profile, order.route)

    def admits(self, order: CompactionOrder) -> bool:
        """Return whether the breaker of the order's summarizer lets a call through now."""
        return self._breaker(order, self.summarizer_for(order)).admits(self.timer())

    def is_in_vain(self, order: CompactionOrder) -> bool:
        """Return whether a model would write what the next request cannot use, so that rules are to write it."""
        is_allowed = order.profile.policy.on_failure == "deterministic"
        asks_model = self.summarizer_for(order).recipe.strategy != self.fallback.recipe.strategy
        return is_allowed and asks_model and self._lost.are_made_for(order)

    def resting(self) -> int:
        """Return how many breakers are open now."""
        now = self.timer()
        return sum(breaker.state(now) == "open" for breaker in self._breakers.values())

    async def write(
        self, order: CompactionOrder, summarizer: Summarizer, seconds: float | None = None
    ) -> SummaryText | NotSummarized:
        """Return a text, or why there is none. The failure policy covers whatever a strategy raises (FR-5.1.1).

        :param seconds: the most time it may take, if that is less than the summarizer's timeout
        """
        started, policy, detail = self.timer(), order.profile.policy, ""
        if not (breaker := self._breaker(order, summarizer)).admits(started):
            wait = breaker.seconds_left(started)
            return NotSummarized(f"the summarizer failed {breaker.failures} times and rests for {wait:.0f} s", wait)
        allowed = policy.summarizer_timeout_seconds
        allowed = allowed if seconds is None else min(allowed, max(seconds, 0.0))
        self._learn(order, summarizer, breaker.with_probe(started, allowed))
        try:
            async with asyncio.timeout(allowed):
                text = await self.text(order, summarizer, allowed)
        except TimeoutError:
            reason = _LATE
        except asyncio.CancelledError:
            self._learn(order, summarizer, self._breaker(order, summarizer).after_abandoned_probe(self.timer()))
            raise
        except SummaryOverdue as error:
            return self._overdue(order, summarizer, error, self.timer() - started)
        except TidemarkError as error:
            reason, detail = str(error), error.internal
        except Exception as error:  # noqa: BLE001 - an error in a strategy must not cost the client its answer
            reason, detail = f"the summarizer failed: {type(error).__name__}", _frames(error)
        else:
            self._learn(order, summarizer, self._breaker(order, summarizer).after_success())
            if text.warning:
                conversation, name, owner = order.conversation, order.profile.name, order.owner
                strategy, seconds = summarizer.recipe.strategy, self.timer() - started
                self._emit(
                    SummaryFailed(conversation, name, strategy, text.warning, text.made_by, seconds, owner=owner)
                )
            return text
        strategy = summarizer.recipe.strategy
        model, duration = order.profile.name, self.timer() - started
        failed = (order.conversation, model, strategy, reason, policy.on_failure, duration, detail, order.owner)
        self._emit(SummaryFailed(*failed))
        # A summarizer that was stopped early, because its client waits no longer, may have been about to answer.
        is_fair = allowed >= _FAIR_SHARE * policy.summarizer_timeout_seconds
        after = self._breaker(order, summarizer)
        if is_fair or reason != _LATE or after.probing:
            after = after.after_failure(self.timer())
        self._learn(order, summarizer, after)
        return NotSummarized(reason, after.seconds_left(self.timer()))

    async def receipt(self, order: CompactionOrder, draft: SummaryText) -> Receipt:
        """Return what a text has of the summary and the messages that it takes the place of."""
        plan = order.plan
        if plan.earlier:  # it was made anew from them
            return await self._write_receipt((*plan.earlier, *plan.messages), None, draft, order.reading)
        return await self._write_receipt(plan.messages, plan.previous, draft, order.reading)

    def _overdue(
        self, order: CompactionOrder, summarizer: Summarizer, error: SummaryOverdue, duration: float
    ) -> NotSummarized:
        """Report messages that took too long to read. The summarizer did not fail, so its breaker stays as it was."""
        self._learn(order, summarizer, self._breaker(order, summarizer).after_abandoned_probe(self.timer()))
        model, strategy, policy = order.profile.name, summarizer.recipe.strategy, order.profile.policy.on_failure
        self._emit(SummaryFailed(order.conversation, model, strategy, str(error), policy, duration))
        return NotSummarized(str(error), overdue=True)

    async def text(self, order: CompactionOrder, summarizer: Summarizer, seconds: float) -> SummaryText:
        """Return a text for an order, without a breaker and without a timeout.

        :param seconds: the time that the summarizer should plan for
        :raises SummaryRejected, UpstreamError: the strategy gave no usable text
        """
        plan = order.plan
        task = SummaryTask(
            messages=plan.messages,
            previous=plan.previous.source if plan.previous else None,
            max_tokens=plan.max_summary_tokens,
            model=order.route.upstream_model,
            route=order.route,
            caller=order.caller,
            timeout_seconds=seconds,
            earlier=plan.earlier,
            reading=order.reading,
            shorten_sentences=order.profile.policy.shorten_sentences,
            live=_live(order),
            ask_provider=order.ask_provider,
            conversation=order.conversation,
        )
        return await write_summary(summarizer, task, plan.covered, self._counter)

    def _breaker(self, order: CompactionOrder, summarizer: Summarizer) -> Breaker:
        return self._breakers.get(_breaker_key(order, summarizer), CLOSED)

    def _learn(self, order: CompactionOrder, summarizer: Summarizer, after: Breaker) -> None:
        key, now = _breaker_key(order, summarizer), self.timer()
        before = self._breakers.pop(key, CLOSED)
        if after != CLOSED:
            self._breakers.put(key, after)
        if after.state(now) != before.state(now) or (after.state(now) == "open" and after.until != before.until):
            strategy, state = summarizer.recipe.strategy, after.state(now)
            self._emit(BreakerChanged(order.profile.name, strategy, state, after.failures, after.seconds_left(now)))


async def write_summary(summarizer: Summarizer, task: SummaryTask, covered: int, counter: TokenCounter) -> SummaryText:
    """Return a text whose summary message stands for ``covered`` messages within ``task.max_tokens``.

    :param task: its ``max_tokens`` bounds the whole message; the strategy gets what the message's frame leaves
    :raises SummaryRejected: the strategy returned an empty text
    """
    bound, model = task.max_tokens, task.model
    frame = counter.count_message(render_text("", covered), model)
    draft = await summarizer.summarize(replace(task, max_tokens=max(bound - frame, 1)))
    text = draft.text.strip()
    if draft.native is not None:  # it is signed as it is, and whoever asked for it has checked that it fits
        return draft

    def excess(part: str) -> int:
        return counter.count_message(render_text(part, covered), model) - bound

    if text and excess(text) > 0 and draft.made_by == "extractive":
        text = _without_end(text, excess, bound, counter, model)
    elif text and excess(text) > 0:
        # Marks in the text are escaped, which can cost more tokens than the text has.
        shorter = shorten_prose(text, lambda part: excess(part) <= 0)
        left_out = draft.statements_left_out + shorter.left_out
        draft = replace(draft, statements=draft.statements or shorter.statements, statements_left_out=left_out)
        text = shorter.text.strip()
    if not text:
        message = f"the {summarizer.recipe.strategy} summarizer gave an empty text"
        raise SummaryRejected(message)
    return replace(draft, text=text)


def _without_end(text: str, excess: Callable[[str], int], bound: int, counter: TokenCounter, model: str) -> str:
    """Return lines of speakers without their last words, which the text and its frame together have no tokens for.

    :param excess: returns the tokens of the message of a text beyond the bound
    """
    limit = bound
    while text and (over := excess(text)) > 0:
        tokens = min(limit, counter.count_text(text, model))
        # Marks that are escaped can cost more tokens than the text has: then the ratio gives the cut.
        limit = tokens - over if 2 * over < tokens else tokens * bound // (bound + over) - 1
        text = counter.cut_text(text, model, limit).rstrip() if limit > 0 else ""
    return text


def _frames(error: Exception) -> str:
    """Return where an error was raised, without its message, which may quote a conversation."""
    frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
    return " > ".join(f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)


_BreakerKey = tuple[str, str, str, str, bytes]


def _breaker_key(order: CompactionOrder, summarizer: Summarizer) -> _BreakerKey:
    """Return what a breaker belongs to: the recipe, the model, its upstream and the credential."""
    recipe, route = summarizer.recipe, order.route
    model = route.upstream_model if recipe.model.startswith(AUTO) else ""  # otherwise the recipe names it
    return (recipe.key, model, route.provider, route.base_url, order.caller.fingerprint)


def _live(order: CompactionOrder) -> CachedPrefix | None:
    """Return the beginning of the conversation that the provider has in its cache."""
    if order.request is None:
        return None
    return cached_prefix(order.request, order.plan, order.profile, order.in_use, left_out=order.left_out)
