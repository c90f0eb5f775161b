"""Writing a summary: a strategy is asked, its breaker heeded, its text checked and cut to its bound.

Below ``compaction/compactor.py``, which wants a summary at once on the road of a request, and
``compaction/background.py``, which makes one while nobody waits. The strategies write texts; this file decides whether
a text is a summary.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from proxy.core.breaker import CLOSED, Breaker
from proxy.core.conversation.messages import Message, ModelRequest
from proxy.core.conversation.prefix import PrefixChain
from proxy.core.conversation.summary import Cause, PrefixSummary, render_text
from proxy.core.errors import SummaryOverdue, SummaryRejected, TidemarkError
from proxy.core.events import BreakerChanged, Listener, SummaryFailed
from proxy.core.planning.budget import ModelProfile
from proxy.core.planning.cached_prefix import cached_prefix
from proxy.core.planning.situation import Compact
from proxy.core.ports import Caller, Route, Summarizer, SummaryTask, TokenCounter

Clock = Callable[[], float]
ChooseSummarizer = Callable[[ModelProfile, Route], Summarizer]
"""The strategy that a model's policy names; ``app`` knows them all."""
_LATE = "the summarizer did not answer in time"
_FAIR_SHARE = 0.4
"""Of the summarizer's time: who got less and did not answer has not failed. The default wait is half of it."""
AUTO = "auto"
"""A recipe's model that follows the conversation's."""
UNBOUNDED_SECONDS = 60.0
"""What a summarizer plans for where nothing bounds its time."""
_PLACES = 4
"""Of a slip, so many calls are logged, the innermost last."""
_BREAKERS = 1024
"""Remembered; of summarizers that fail nowhere near as many are in use at once."""


@dataclass(frozen=True, slots=True)
class CompactionOrder:
    """One compaction that is to be done."""

    plan: Compact
    tenant: str
    conversation: str
    chain: PrefixChain
    profile: ModelProfile
    route: Route
    caller: Caller
    cause: Cause
    degraded: bool = False
    """Whether the store is down: then the summary is a deterministic one, the same for the same request."""
    request: ModelRequest | None = None
    """The request that the plan was made for: what a summarizer may continue (``core/planning/cached_prefix.py``)."""
    whole: Sequence[Message] = ()
    """The request's messages as the client sent them, where some were clipped since."""
    counted: Sequence[int] = ()
    """Tokens of each of ``whole``."""
    in_use: PrefixSummary | None = None
    """The summary that stands for the prefix until this one takes its place."""


@dataclass(frozen=True, slots=True)
class NotSummarized:
    """No summary could be made; nothing was lost or changed."""

    reason: str
    retry_after: float = 0.0
    """Seconds for which it is no use to ask again: the summarizer is left alone for so long."""
    overdue: bool = False
    """Whether the text took too long to read, so that only ``SummaryWriter.plain`` can make something of it."""


class SummaryWriter:
    """Writes summaries.

    The mutable state is the breakers of the summarizers that failed of late: one for each strategy, upstream and
    credential, so that one client's bad key does not take the summarizer from the others (promise 8).
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
    ) -> None:
        """Nothing is written yet.

        :param fallback: writes where the chosen strategy failed
        :param plain: writes where even reading took too long
        """
        self.choose = choose
        self.fallback = fallback
        self.plain = plain
        self.timer = timer
        self._counter = counter
        self._emit = emit
        self._breakers: dict[_BreakerKey, Breaker] = {}

    def summarizer_for(self, order: CompactionOrder) -> Summarizer:
        """The summarizer of an order; where nothing can be stored, the one that always writes the same."""
        return self.fallback if order.degraded else self.choose(order.profile, order.route)

    def admits(self, order: CompactionOrder) -> bool:
        """Whether the order's summarizer may be asked now."""
        return self._breaker(order, self.summarizer_for(order)).admits(self.timer())

    def resting(self) -> int:
        """How many summarizers are left alone now."""
        now = self.timer()
        return sum(breaker.state(now) == "open" for breaker in self._breakers.values())

    async def write(
        self, order: CompactionOrder, summarizer: Summarizer, seconds: float | None = None
    ) -> str | NotSummarized:
        """A text, or why there is none. Whatever a strategy raises is a failure that has its policy (FR-5.1.1).

        :param seconds: the longest it may take, where that is less than the summarizer's own time
        """
        started, policy, detail = self.timer(), order.profile.policy, ""
        if not (breaker := self._breaker(order, summarizer)).admits(started):
            left = breaker.seconds_left(started)
            return NotSummarized(f"the summarizer failed {breaker.failures} times and rests for {left:.0f} s", left)
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
        except Exception as error:  # noqa: BLE001 - a strategy's slip must not cost the client its answer
            reason, detail = f"the summarizer failed: {type(error).__name__}", _places(error)
        else:
            self._learn(order, summarizer, self._breaker(order, summarizer).after_success())
            return text
        strategy = summarizer.recipe.strategy
        model, taken = order.profile.name, self.timer() - started
        self._emit(SummaryFailed(order.conversation, model, strategy, reason, policy.on_failure, taken, detail))
        # Who was cut short, because the client waits no longer than that, may have been about to answer.
        fair = allowed >= _FAIR_SHARE * policy.summarizer_timeout_seconds
        after = self._breaker(order, summarizer)
        if fair or reason != _LATE or after.probing:
            after = after.after_failure(self.timer())
        self._learn(order, summarizer, after)
        return NotSummarized(reason, after.seconds_left(self.timer()))

    def _overdue(
        self, order: CompactionOrder, summarizer: Summarizer, error: SummaryOverdue, taken: float
    ) -> NotSummarized:
        """The text was too much. That is no failure of whoever is asked, so it closes no breaker."""
        self._learn(order, summarizer, self._breaker(order, summarizer).after_abandoned_probe(self.timer()))
        model, strategy, policy = order.profile.name, summarizer.recipe.strategy, order.profile.policy.on_failure
        self._emit(SummaryFailed(order.conversation, model, strategy, str(error), policy, taken))
        return NotSummarized(str(error), overdue=True)

    async def text(self, order: CompactionOrder, summarizer: Summarizer, seconds: float = UNBOUNDED_SECONDS) -> str:
        """Return a text for an order, past the breaker and without a timeout of its own.

        :param seconds: the time that the summarizer should plan for
        :raises SummaryRejected, UpstreamError: the strategy gave no usable text
        """
        plan = order.plan
        task = SummaryTask(
            messages=plan.messages,
            previous=plan.previous.text if plan.previous else None,
            max_tokens=plan.max_summary_tokens,
            model=order.route.upstream_model,
            route=order.route,
            caller=order.caller,
            timeout_seconds=seconds,
            live=cached_prefix(order.request, plan, order.profile) if order.request else None,
        )
        return await write_summary(summarizer, task, plan.covered, self._counter)

    def _breaker(self, order: CompactionOrder, summarizer: Summarizer) -> Breaker:
        return self._breakers.get(_breaker_key(order, summarizer), CLOSED)

    def _learn(self, order: CompactionOrder, summarizer: Summarizer, after: Breaker) -> None:
        key, now = _breaker_key(order, summarizer), self.timer()
        before = self._breakers.pop(key, CLOSED)
        if after != CLOSED:
            self._breakers[key] = after
            if len(self._breakers) > _BREAKERS:
                del self._breakers[next(iter(self._breakers))]
        if after.state(now) != before.state(now) or (after.state(now) == "open" and after.until != before.until):
            strategy, state = summarizer.recipe.strategy, after.state(now)
            self._emit(BreakerChanged(order.profile.name, strategy, state, after.failures, after.seconds_left(now)))


async def write_summary(summarizer: Summarizer, task: SummaryTask, covered: int, counter: TokenCounter) -> str:
    """A text whose rendered message stands for ``covered`` messages within ``task.max_tokens``.

    The bound is enforced, not hoped for: what the strategy wrote beyond it is cut.

    :param task: its ``max_tokens`` bounds the whole message; the strategy is given what the frame leaves
    :raises SummaryRejected: the strategy gave nothing that could stand for the messages
    """
    bound, model = task.max_tokens, task.model
    frame = counter.count_message(render_text("", covered), model)
    text = (await summarizer.summarize(replace(task, max_tokens=max(bound - frame, 1)))).strip()
    room = bound
    while text and (over := counter.count_message(render_text(text, covered), model) - bound) > 0:
        tokens = min(room, counter.count_text(text, model))
        # Marks in the text are blunted, which can cost more than it has tokens: then it is cut by the ratio.
        room = tokens - over if 2 * over < tokens else tokens * bound // (bound + over) - 1
        text = counter.cut_text(text, model, room).rstrip() if room > 0 else ""
    if not text:
        message = f"the {summarizer.recipe.strategy} summarizer gave an empty text"
        raise SummaryRejected(message)
    return text


def _places(error: Exception) -> str:
    """Where an error came from; not its words, which may quote a conversation."""
    frames = traceback.extract_tb(error.__traceback__)[-_PLACES:]
    return " > ".join(f"{PurePath(one.filename).name}:{one.lineno} {one.name}" for one in frames)


_BreakerKey = tuple[str, str, str, str, bytes]


def _breaker_key(order: CompactionOrder, summarizer: Summarizer) -> _BreakerKey:
    """Strategy, who is asked, where, and with whose credential."""
    recipe, route = summarizer.recipe, order.route
    model = route.upstream_model if recipe.model.startswith(AUTO) else ""  # else the recipe names it
    return (recipe.key, model, route.provider, route.base_url, order.caller.fingerprint)
