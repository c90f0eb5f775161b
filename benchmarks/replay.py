"""Computes the cost of a compaction policy by replaying conversations against a modelled prompt cache.

``make bench-replay`` runs it. The real plan decides. Nothing is sent and nothing is timed, so the figures are the same
everywhere. A provider's cache contains the prefix of the previous request, whose tokens cost a tenth. All other tokens
cost one each, and so do those that a summarizer reads and writes. ``--output-price 5`` is nearer to the price of
written tokens at large providers, and ``--write-price 1.25`` to what Anthropic and GPT-5.6 bill for a cache write.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from benchmarks.shapes import PRIMING, Shape, shapes
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe, render_summary
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import Budget, CompactionPolicy, ModelProfile, budget_for
from tidemark.core.planning.plan import plan, plan_ahead
from tidemark.core.planning.situation import (
    CannotFit,
    Compact,
    CompactionPlan,
    NoCompaction,
    PlanInput,
    ReuseSummary,
    SwapSummary,
)
from tidemark.core.recall.epoch import LEAST_TOKENS, questions, share_of

CACHED_PRICE = 0.1
"""The price of a cached token, in new tokens."""
PROMPT_TOKENS = 300
"""The tokens of a summarizer's instructions."""
WRITTEN_RATIO, LEAST_WRITTEN = 20, 500
"""The shortest summary in tokens. A summary has a twentieth of the replaced tokens, within this and its bound."""
RECIPE = SummaryRecipe("llm", "general", 1)

RECALLED = b"recalled for "
"""Begins the digest of recalled messages."""
Parts = list[tuple[bytes, int]]
"""The parts of a request in order: each part's digest and its tokens."""


@dataclass
class Bill:
    """The totals of one conversation."""

    cached: int = 0
    fresh: int = 0
    summaries: int = 0
    waits: int = 0
    """The requests that waited for a summary."""
    read: int = 0
    written_tokens: int = 0
    output_price: float = 1.0
    """The price of a written token, in new tokens."""
    cache_write_price: float = 1.0
    """The price of a token that is written to the cache, in new tokens."""
    recalled: int = 0
    """Tokens of recalled messages that were new."""
    largest: int = 0
    """The tokens of the largest request."""
    _before: Parts = field(default_factory=list)

    def send(self, parts: Parts) -> None:
        """Add a request."""
        same = 0
        for part, before in zip(parts, self._before, strict=False):
            if part != before:
                break
            same += part[1]
        total = sum(tokens for _, tokens in parts)
        self.cached += same
        self.fresh += total - same
        self.largest = max(self.largest, total)
        self._before = parts

    def send_recalling(self, parts: Parts) -> None:
        """Add a request, and note the recalled tokens that the request before did not have."""
        before = dict(self._before)
        self.recalled += sum(tokens for part, tokens in parts if part.startswith(RECALLED) and part not in before)
        self.send(parts)

    def summarize(self, read: int, written_tokens: int, *, waits: bool) -> None:
        """Add a summarizer's call."""
        self.summaries += 1
        self.waits += waits
        self.read += PROMPT_TOKENS + read
        self.written_tokens += written_tokens

    @property
    def hit(self) -> float:
        """Return the cached share of the input."""
        return self.cached / (self.cached + self.fresh)

    @property
    def cost(self) -> float:
        """Return the cost in new input tokens, with the summarizer's own."""
        input_cost = CACHED_PRICE * self.cached + self.cache_write_price * self.fresh
        return input_cost + self.read + self.output_price * self.written_tokens


class Policy(Protocol):
    """A way to keep a conversation within its window."""

    name: str

    def replay(self, shape: Shape) -> Bill:
        """Send every request of a conversation."""
        ...


class Never:
    """Sends the whole conversation each time, as if the window were unlimited."""

    name = "never compact"

    def replay(self, shape: Shape) -> Bill:
        """Send every request as it is."""
        bill = Bill()
        for messages, tokens in shape.requests:
            bill.send(_parts(messages, tokens))
        return bill


@dataclass
class Planned:
    """Follows ``core/planning/plan.py``, with the policy's own budget."""

    name: str
    budget: Callable[[Shape], Budget]
    settings: CompactionPolicy = field(default_factory=CompactionPolicy)
    ahead: bool = False
    """Whether summaries are made in the background."""
    recall_every: int = 1
    """Of how many questions about one bears on something that the context lacks; nothing is recalled for the others."""

    def replay(self, shape: Shape) -> Bill:
        """Perform the steps of every request: plan, compact, assemble."""
        bill, budget = Bill(), self.budget(shape)
        summary: PrefixSummary | None = None
        prepared: PrefixSummary | None = None
        making: tuple[int, PrefixSummary] | None = None
        """The request from which on a summary is ready that is being made."""
        recalled: dict[bytes, int] = {}
        """The tokens recalled since the compaction, by their question's digest."""
        for number, (messages, tokens) in enumerate(shape.requests):
            if making is not None and number >= making[0]:
                prepared, making = making[1], None
            plan_input = PlanInput(
                messages=messages,
                tokens=tokens,
                other_tokens=PRIMING,
                budget=budget,
                policy=self.settings,
                summary=summary,
                summary_tokens=summary.tokens if summary else 0,
                prepared=prepared,
                prepared_tokens=prepared.tokens if prepared else 0,
            )
            planned = _planned(plan_input, sum(recalled.values()))
            assert not isinstance(planned, CannotFit), f"{shape.name}: {self.name} cannot fit request {number}"
            if isinstance(planned, Compact):
                if making is not None and making[1].covered > planned.covered // 2:
                    summary, making = making[1], None  # it is nearly done: the request waits for it
                    bill.waits += 1
                else:
                    summary = _make_summary(planned, bill, waits=True)
            elif isinstance(planned, SwapSummary):
                summary = planned.summary
            if isinstance(planned, Compact | SwapSummary):
                recalled = {}
            forwarded = (
                messages if isinstance(planned, NoCompaction) or summary is None else assemble(messages, summary)
            )
            parts = _forwarded_parts(forwarded, messages, tokens, summary)
            question = next(questions(forwarded), None) if summary is not None else None
            if question is not None and int.from_bytes(parts[question[0]][0][:4]) % self.recall_every == 0:
                _recall(recalled, parts, question[0], budget)
            bill.send_recalling(_with_recall(parts, recalled, budget))
            if (
                self.ahead
                and making is None
                and (
                    coming := plan_ahead(
                        _less(
                            replace(plan_input, summary=summary),
                            min(sum(recalled.values()), budget.high_water - _sum(parts)),
                        )
                    )
                )
                is not None
            ):
                making = number + shape.behind, _make_summary(coming, bill, waits=False)
        return bill


@dataclass
class Simple:
    """Follows other designs, without Tidemark's plan: it summarizes the oldest messages when the window is full."""

    name: str
    low: float
    """The share of the window to which a compaction brings the request."""
    appends: bool
    """Whether summaries stay and new ones are appended; else each one replaces the one before."""

    def replay(self, shape: Shape) -> Bill:
        """Remove as few messages as necessary."""
        bill, window = Bill(), shape.window.window
        summaries: Parts = []
        start = 1
        for messages, tokens in shape.requests:
            stay_tokens = sum(tokens[start:])
            if tokens[0] + _sum(summaries) + stay_tokens > window:
                stays = summaries if self.appends else []
                taken_in = _sum(summaries) - _sum(stays)
                end, replaced_tokens = start, taken_in
                while end < len(messages) - 1:
                    total = (
                        tokens[0]
                        + _sum(stays)
                        + _written_tokens(replaced_tokens)
                        + taken_in
                        + stay_tokens
                        - replaced_tokens
                    )
                    if replaced_tokens > taken_in and total <= self.low * window:
                        break
                    replaced_tokens += tokens[end]
                    end += 1
                bill.summarize(replaced_tokens, _written_tokens(replaced_tokens), waits=True)
                summaries = [*stays, (b"summary up to %d" % end, _written_tokens(replaced_tokens))]
                start = end
            head = [(messages[0].digest, tokens[0])]
            bill.send([*head, *summaries, *_parts(messages[start:], tokens[start:])])
        return bill


def _sum(parts: Parts) -> int:
    return sum(size for _, size in parts)


def _written_tokens(replaced: int) -> int:
    """Return the tokens of a summary that replaces so many."""
    return max(replaced // WRITTEN_RATIO, LEAST_WRITTEN)


def _make_summary(planned: Compact, bill: Bill, *, waits: bool) -> PrefixSummary:
    """Make a summary as long as a model would write it, and add its price."""
    tokens = min(planned.max_summary_tokens, _written_tokens(planned.replaced_tokens))
    bill.summarize(planned.replaced_tokens, tokens, waits=waits)
    text = f"the first {planned.covered}"
    return PrefixSummary(
        b"", planned.covered, text, RECIPE, "llm", "automatic", 0.0, tokens=tokens, absorbed=planned.absorbed
    )


def _parts(messages: Sequence[Message], tokens: Sequence[int]) -> Parts:
    return [(message.digest, size) for message, size in zip(messages, tokens, strict=True)]


def _forwarded_parts(
    forwarded: Sequence[Message], messages: Sequence[Message], tokens: Sequence[int], summary: PrefixSummary | None
) -> Parts:
    """Return the parts of the forwarded request."""
    sizes = dict(_parts(messages, tokens))
    if summary is not None:
        sizes[render_summary(summary).digest] = summary.tokens
    return [(message.digest, sizes[message.digest]) for message in forwarded]


def _planned(plan_input: PlanInput, recalled_tokens: int) -> CompactionPlan:
    """Plan as ``pipeline/fit.py`` does: a prepared summary comes into use where what was recalled fits no more."""
    planned = plan(plan_input)
    if recalled_tokens and isinstance(planned, ReuseSummary):
        earlier = plan(_less(plan_input, recalled_tokens))
        return earlier if isinstance(earlier, SwapSummary) else planned
    return planned


def _less(plan_input: PlanInput, recalled_tokens: int) -> PlanInput:
    """Return the input with the high water that the recalled tokens leave."""
    budget = plan_input.budget
    high_water, prepare_mark = budget.high_water - recalled_tokens, budget.prepare_mark - recalled_tokens
    return replace(plan_input, budget=replace(budget, high_water=high_water, prepare_mark=prepare_mark))


def _recall(recalled: dict[bytes, int], parts: Parts, place: int, budget: Budget) -> None:
    """Recall for a question, once, as much as the epoch's bound and the limit allow."""
    digest, tokens = parts[place]
    if digest in recalled or tokens > budget.max_recall:
        return
    used_tokens = sum(recalled.values())
    free_tokens = budget.high_water - _sum(parts[: place + 1]) - used_tokens
    size = min(free_tokens, share_of(budget.max_recall, used_tokens))
    if size >= LEAST_TOKENS:
        recalled[digest] = size


def _with_recall(parts: Parts, recalled: dict[bytes, int], budget: Budget) -> Parts:
    """Return the parts of a request with what was recalled before each question, if that fits."""
    if not recalled or _sum(parts) + sum(recalled.values()) > budget.high_water:
        return parts
    with_recall: Parts = []
    for digest, tokens in parts:
        if digest in recalled:
            with_recall.append((RECALLED + digest, recalled[digest]))
        with_recall.append((digest, tokens))
    return with_recall


def marks(high: float, low: float) -> Callable[[Shape], Budget]:
    """Make a budget of the whole window: compact at one share, down to the other."""

    def budget(shape: Shape) -> Budget:
        window = shape.window.window
        return Budget(
            window=window,
            limit=window,
            high_water=int(high * window),
            prepare_mark=window,
            low_water=int(low * window),
            retention=window,
            max_summary=window // 20,
            min_tokens=0,
        )

    return budget


def own(**settings: float | None) -> tuple[Callable[[Shape], Budget], CompactionPolicy]:
    """Return Tidemark's marks for a shape, with keys of ``compaction.defaults`` in place of the defaults.

    Recall is off unless the keys say otherwise, because it costs about the same whatever the marks are.
    """
    policy = CompactionPolicy(**{"max_recall_tokens": 0, **settings})  # type: ignore[arg-type]

    def budget(shape: Shape) -> Budget:
        return budget_for(ModelProfile(shape.name, shape.window, policy), shape.reply_tokens)

    return budget, policy


def policies() -> list[Policy]:
    """Return other designs' policies, and Tidemark's defaults without and with preparation."""
    return [
        Never(),
        Simple("compact to just fit", 1.0, appends=False),
        Planned("low water 50 %", marks(1, 0.5), CompactionPolicy(min_gain=0.0)),
        Simple("append-only segments, 50 %", 0.5, appends=True),
        Planned("Tidemark, made on demand", *own(prepare=1.0)),
        Planned("Tidemark, prepared (the default)", *own(), ahead=True),
        Planned("Tidemark, recalling at each question", *own(max_recall_tokens=None), ahead=True),
        Planned("Tidemark, recalling at one in 7", *own(max_recall_tokens=None), ahead=True, recall_every=7),
        Planned("Tidemark, recalling at one in 20", *own(max_recall_tokens=None), ahead=True, recall_every=20),
    ]


def main() -> None:
    """Print a table for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output-price", type=float, default=1.0, help="of a written token, in new input tokens")
    parser.add_argument("--write-price", type=float, default=1.0, help="of a token that is written to the cache")
    options = parser.parse_args()
    for shape in shapes():
        print(f"\n{shape.name}: {len(shape.ends)} requests, {shape.total_tokens / 1e6:.1f} million tokens uncompacted")
        print(f"  {'policy':40} {'cache hit':>9} {'cost, M':>8} {'summaries':>10} {'waited for':>11} {'largest':>8}")
        for policy in policies():
            bill = replace(
                policy.replay(shape), output_price=options.output_price, cache_write_price=options.write_price
            )
            print(
                f"  {policy.name:40} {bill.hit:9.1%} {bill.cost / 1e6:8.2f} {bill.summaries:10} {bill.waits:11} "
                f"{bill.largest:8,}"
            )


if __name__ == "__main__":
    main()
