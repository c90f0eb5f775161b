"""What a policy of compaction costs: conversations replayed through the real plan, with a modelled prompt cache.

``make bench-replay``. Nothing is sent and nothing is timed, so it gives the same figures everywhere. A provider's cache
holds what the request before began with: those tokens cost a tenth. All else is new, and costs one each, and so does
what a summarizer reads and writes. ``--output-price 5`` is nearer to what large providers ask for writing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from benchmarks.shapes import PRIMING, Shape, shapes
from proxy.core.conversation.messages import Message
from proxy.core.conversation.summary import PrefixSummary, SummaryRecipe, render_summary
from proxy.core.planning.assemble import assemble
from proxy.core.planning.budget import Budget, CompactionPolicy, ModelProfile, budget_for
from proxy.core.planning.plan import plan, plan_ahead
from proxy.core.planning.situation import CannotFit, Compact, NoCompaction, PlanInput, SwapSummary

CACHED_PRICE = 0.1
"""Of a token that the cache holds, in new ones."""
PROMPT_TOKENS = 300
"""A summarizer's instructions."""
WRITTEN_RATIO, LEAST_WRITTEN = 20, 500
"""A summary is a twentieth of what it replaces, but never so short, and never longer than its bound."""
RECIPE = SummaryRecipe("llm", "general", 1)

Parts = list[tuple[bytes, int]]
"""What a request consists of, in order: each part's digest and its tokens."""


@dataclass
class Bill:
    """What one conversation came to."""

    cached: int = 0
    fresh: int = 0
    summaries: int = 0
    waits: int = 0
    """Requests that had to wait for a summary."""
    read: int = 0
    written: int = 0
    output_price: float = 1.0
    """Of a written token, in new ones."""
    largest: int = 0
    """Tokens of the largest request."""
    _before: Parts = field(default_factory=list)

    def send(self, parts: Parts) -> None:
        """A request goes out."""
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

    def summarize(self, read: int, written: int, *, waits: bool) -> None:
        """A summarizer is asked."""
        self.summaries += 1
        self.waits += waits
        self.read += PROMPT_TOKENS + read
        self.written += written

    @property
    def hit(self) -> float:
        """Share of the input that the cache held."""
        return self.cached / (self.cached + self.fresh)

    @property
    def cost(self) -> float:
        """In new input tokens, the summarizer's own included."""
        return CACHED_PRICE * self.cached + self.fresh + self.read + self.output_price * self.written


class Policy(Protocol):
    """How a conversation is kept within its window."""

    name: str

    def replay(self, shape: Shape) -> Bill:
        """Send every request of a conversation."""
        ...


class Never:
    """All of it is sent each time, as if the window had no end."""

    name = "never compact"

    def replay(self, shape: Shape) -> Bill:
        """Send every request as it is."""
        bill = Bill()
        for messages, tokens in shape.requests:
            bill.send(_parts(messages, tokens))
        return bill


@dataclass
class Planned:
    """What ``core/planning/plan.py`` decides, under a budget of the policy's own."""

    name: str
    budget: Callable[[Shape], Budget]
    settings: CompactionPolicy = field(default_factory=CompactionPolicy)
    ahead: bool = False
    """Whether summaries are made in the background."""

    def replay(self, shape: Shape) -> Bill:
        """Walk the road of every request: plan, compact, assemble."""
        bill, budget = Bill(), self.budget(shape)
        summary: PrefixSummary | None = None
        prepared: PrefixSummary | None = None
        making: tuple[int, PrefixSummary] | None = None
        """The request from which on a summary is ready that is being made."""
        for number, (messages, tokens) in enumerate(shape.requests):
            if making is not None and number >= making[0]:
                prepared, making = making[1], None
            given = PlanInput(
                messages=messages,
                tokens=tokens,
                fixed=PRIMING,
                budget=budget,
                policy=self.settings,
                summary=summary,
                summary_tokens=summary.tokens if summary else 0,
                prepared=prepared,
                prepared_tokens=prepared.tokens if prepared else 0,
            )
            planned = plan(given)
            assert not isinstance(planned, CannotFit), f"{shape.name}: {self.name} cannot fit request {number}"
            if isinstance(planned, Compact):
                if making is not None and making[1].covered > planned.covered // 2:
                    summary, making = making[1], None  # it is nearly done: the request waits for it
                    bill.waits += 1
                else:
                    summary = _made(planned, bill, waits=True)
            elif isinstance(planned, SwapSummary):
                summary = planned.summary
            sent = messages if isinstance(planned, NoCompaction) or summary is None else assemble(messages, summary)
            bill.send(_sent(sent, messages, tokens, summary))
            if self.ahead and making is None and (coming := plan_ahead(replace(given, summary=summary))) is not None:
                making = number + shape.behind, _made(coming, bill, waits=False)
        return bill


@dataclass
class Simple:
    """Others' ways, without Tidemark's plan: the oldest messages are summarized whenever the window is full."""

    name: str
    low: float
    """Share of the window that a compaction brings the request down to."""
    appends: bool
    """Whether summaries stay and are added to; else each one takes in the one before."""

    def replay(self, shape: Shape) -> Bill:
        """Cut off as few messages as will do."""
        bill, window = Bill(), shape.window.window
        summaries: Parts = []
        start = 1
        for messages, tokens in shape.requests:
            kept = sum(tokens[start:])
            if tokens[0] + _sum(summaries) + kept > window:
                stays = summaries if self.appends else []
                taken_in = _sum(summaries) - _sum(stays)
                end, gone = start, taken_in
                while end < len(messages) - 1:
                    left = tokens[0] + _sum(stays) + _written(gone) + taken_in + kept - gone
                    if gone > taken_in and left <= self.low * window:
                        break
                    gone += tokens[end]
                    end += 1
                bill.summarize(gone, _written(gone), waits=True)
                summaries = [*stays, (b"summary up to %d" % end, _written(gone))]
                start = end
            head = [(messages[0].digest, tokens[0])]
            bill.send([*head, *summaries, *_parts(messages[start:], tokens[start:])])
        return bill


def _sum(parts: Parts) -> int:
    return sum(size for _, size in parts)


def _written(replaced: int) -> int:
    """Tokens that a model writes in place of so many."""
    return max(replaced // WRITTEN_RATIO, LEAST_WRITTEN)


def _made(planned: Compact, bill: Bill, *, waits: bool) -> PrefixSummary:
    """A summary as long as a model would write it, and its price."""
    tokens = min(planned.max_summary_tokens, _written(planned.replaced_tokens))
    bill.summarize(planned.replaced_tokens, tokens, waits=waits)
    text = f"the first {planned.covered}"
    return PrefixSummary(
        b"", planned.covered, text, RECIPE, "llm", "automatic", 0.0, tokens=tokens, absorbed=planned.absorbed
    )


def _parts(messages: Sequence[Message], tokens: Sequence[int]) -> Parts:
    return [(message.digest, size) for message, size in zip(messages, tokens, strict=True)]


def _sent(
    sent: Sequence[Message], messages: Sequence[Message], tokens: Sequence[int], summary: PrefixSummary | None
) -> Parts:
    """The parts of what is forwarded."""
    sizes = dict(_parts(messages, tokens))
    if summary is not None:
        sizes[render_summary(summary).digest] = summary.tokens
    return [(message.digest, sizes[message.digest]) for message in sent]


def marks(high: float, low: float) -> Callable[[Shape], Budget]:
    """A budget of the whole window: full at one share, brought down to the other."""

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


def own(**settings: float) -> tuple[Callable[[Shape], Budget], CompactionPolicy]:
    """Tidemark's own marks for a shape, with keys of ``compaction.defaults`` in place of the defaults."""
    policy = CompactionPolicy(**settings)  # type: ignore[arg-type]

    def budget(shape: Shape) -> Budget:
        return budget_for(ModelProfile(shape.name, shape.window, policy), shape.reply_tokens)

    return budget, policy


def policies() -> list[Policy]:
    """Those of FIELD.md's table, and Tidemark's defaults without and with summaries made ahead."""
    return [
        Never(),
        Simple("compact to just fit", 1.0, appends=False),
        Planned("low water 50 %", marks(1, 0.5), CompactionPolicy(min_gain=0.0)),
        Simple("append-only segments, 50 %", 0.5, appends=True),
        Planned("Tidemark, made on demand", *own(prepare=1.0)),
        Planned("Tidemark, prepared (the default)", *own(), ahead=True),
    ]


def main() -> None:
    """Print a table for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output-price", type=float, default=1.0, help="of a written token, in new input tokens")
    output_price = parser.parse_args().output_price
    for shape in shapes():
        print(f"\n{shape.name}: {len(shape.ends)} requests, {shape.total_tokens / 1e6:.1f} million tokens uncompacted")
        print(f"  {'policy':34} {'cache hit':>9} {'cost, M':>8} {'summaries':>10} {'waited for':>11} {'largest':>8}")
        for policy in policies():
            bill = replace(policy.replay(shape), output_price=output_price)
            print(
                f"  {policy.name:34} {bill.hit:9.1%} {bill.cost / 1e6:8.2f} {bill.summaries:10} {bill.waits:11} "
                f"{bill.largest:8,}"
            )


if __name__ == "__main__":
    main()
