"""One summary for one prefix: who shares it, who does not, and what a leaving client cancels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest

from tests.core.histories import message
from tests.support.fresh_stores import fresh_store
from tidemark.compaction.compactor import OVERDUE_WARNING, Compactor
from tidemark.compaction.immediate import ImmediateCompaction
from tidemark.compaction.order import CompactionOrder, NotSummarized, Summarized
from tidemark.compaction.storing import SummaryStorage
from tidemark.compaction.writer import SummaryWriter
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.summary import SummaryRecipe, SummaryText
from tidemark.core.errors import SummaryOverdue
from tidemark.core.events import Event, SummaryFailed
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow
from tidemark.core.planning.situation import Compact
from tidemark.core.ports import Caller, Route, SummaryTask
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.leases import RedisLeases
from tidemark.store.lifetimes import Lifetimes, lifetime
from tidemark.store.summary_replacement import RedisSummaryReplacement
from tidemark.summarizers import ExtractiveSummarizer, PlainSummarizer
from tidemark.summarizers.receipts import ReceiptWriter
from tidemark.tokens import LocalTokenCounter

COUNTER = LocalTokenCounter()
ROUTE = Route("wire", "m", "m", "openai", "http://upstream.invalid/v1")
SAID = [message(role="user" if i % 2 == 0 else "assistant", content=f"point {'abcdefghi'[i]} " * 40) for i in range(9)]


@pytest.fixture
def anyio_backend() -> str:
    """The flow belongs to asyncio."""
    return "asyncio"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RedisStore]:
    """A real store."""
    with fresh_store() as server:
        made = RedisStore(server.url, Codec(), ttl_seconds=60)
        yield made
        await made.close()


@dataclass
class Slow:
    """A strategy that takes its time, and may fail; it counts how often it is asked and how often cancelled."""

    answer: Callable[[SummaryTask], str] = lambda _: "They went through the points one by one. " * 20
    seconds: float = 0.05
    asked: int = 0
    cancelled: int = 0
    recipe: SummaryRecipe = field(default_factory=lambda: SummaryRecipe("llm", "general", 1, "slow"))
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def summarize(self, task: SummaryTask) -> SummaryText:
        """Wait, then answer."""
        self.asked += 1
        self.begun.set()
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return SummaryText(self.answer(task), self.recipe.strategy)


def order(
    *, bound: int = 200, messages: list[Message] = SAID, policy: CompactionPolicy | None = None
) -> CompactionOrder:
    """An order to summarize all but the newest message."""
    plan = Compact(
        covered=len(messages) - 1,
        messages=tuple(messages[:-1]),
        previous=None,
        max_summary_tokens=bound,
        absorbed=(),
        replaced_tokens=1000,
        rest_tokens=100,
        fallback=None,
    )
    profile = ModelProfile("m", ModelWindow(2000), policy or CompactionPolicy(strategy="llm"))
    chain = chain_of("tenant", messages)
    return CompactionOrder(plan, "tenant", chain.family + "0" * 16, chain, profile, ROUTE, Caller(b"", ()), "automatic")


def compactor(strategy: Slow, store: RedisStore, events: list[Event] | None = None) -> ImmediateCompaction:
    """A compactor whose models all use ``strategy``."""
    emit = (events if events is not None else []).append
    writer = SummaryWriter(
        choose=lambda _, __: strategy,
        fallback=ExtractiveSummarizer(COUNTER),
        plain=PlainSummarizer(COUNTER),
        counter=COUNTER,
        emit=emit,
        timer=lambda: 0.0,
        write_receipt=ReceiptWriter().receipt,
    )
    replacement = RedisSummaryReplacement(store.ask, Codec(), lifetimes=Lifetimes(lifetime(60)))
    storage = SummaryStorage(store=store, replace_stored=replacement.replace, emit=emit)
    made = Compactor(writer=writer, counter=COUNTER, emit=emit, clock=lambda: 1.0, storage=storage)
    return ImmediateCompaction(compactor=made, writer=writer, store=store, leases=RedisLeases(store.ask), emit=emit)


@pytest.mark.anyio
async def test_equal_orders_share_one_summary(store: RedisStore) -> None:
    """However many ask at once, the strategy is asked once."""
    slow = Slow()
    made = compactor(slow, store)
    results = await asyncio.gather(*[made.compact(order()) for _ in range(20)])
    assert slow.asked == 1
    assert len({result.summary.text for result in results if isinstance(result, Summarized)}) == 1


@pytest.mark.anyio
async def test_orders_with_other_bounds_do_not_share(store: RedisStore) -> None:
    """A summary for a large window is none for a small one."""
    made = compactor(Slow(), store)
    results = await asyncio.gather(made.compact(order(bound=400)), made.compact(order(bound=100)))
    assert [
        result.tokens <= bound
        for result, bound in zip(results, (400, 100), strict=True)
        if isinstance(result, Summarized)
    ] == [True, True]


@pytest.mark.anyio
async def test_a_summary_that_nobody_waits_for_is_cancelled_and_the_next_order_begins_anew(store: RedisStore) -> None:
    """A client that leaves and asks again at once is not answered with its own cancellation."""
    slow = Slow(seconds=0.2)
    made = compactor(slow, store)
    first = asyncio.create_task(made.compact(order()))
    await asyncio.wait_for(slow.begun.wait(), 5)  # on a busy machine the store takes a while before
    first.cancel()
    second = asyncio.create_task(made.compact(order()))
    result = await second
    assert first.cancelled()
    assert isinstance(result, Summarized)
    assert (slow.asked, slow.cancelled) == (2, 1)


@pytest.mark.anyio
async def test_one_that_leaves_does_not_cancel_it_for_the_others(store: RedisStore) -> None:
    """The summary goes on as long as somebody waits."""
    slow = Slow(seconds=0.1)
    made = compactor(slow, store)
    waiting = [asyncio.create_task(made.compact(order())) for _ in range(3)]
    await asyncio.wait_for(slow.begun.wait(), 5)  # on a busy machine the store takes a while before
    waiting[0].cancel()
    assert isinstance(await waiting[1], Summarized)
    assert isinstance(await waiting[2], Summarized)
    assert (slow.asked, slow.cancelled) == (1, 0)


@pytest.mark.anyio
@pytest.mark.parametrize("policy", ["deterministic", "block", "passthrough"])
async def test_whatever_a_strategy_raises_has_its_policy(store: RedisStore, policy: str) -> None:
    """FR-5.1.1: a slip of a strategy is a failed summary, told as a fact, and not the end of the request."""

    def slip(_: SummaryTask) -> str:
        raise KeyError("slip")

    events: list[Event] = []
    made = compactor(Slow(slip, seconds=0), store, events)
    settings = replace(CompactionPolicy(strategy="llm"), on_failure=policy)  # type: ignore[arg-type]
    result = await made.compact(order(policy=settings))
    assert isinstance(result, Summarized if policy == "deterministic" else NotSummarized)
    assert [event.reason for event in events if isinstance(event, SummaryFailed)] == ["the summarizer failed: KeyError"]


@pytest.mark.anyio
@pytest.mark.parametrize("policy", ["deterministic", "block", "passthrough"])
@pytest.mark.parametrize("strategy", ["llm", "extractive"])
async def test_a_text_that_takes_too_long_to_read_gets_a_plain_summary_and_a_warning(
    store: RedisStore, policy: str, strategy: Literal["llm", "extractive"]
) -> None:
    """Also where no model was asked; a policy that wants no substitute has its way. No breaker learns of it."""

    def overdue(_: SummaryTask) -> str:
        raise SummaryOverdue("too long")

    made = compactor(Slow(overdue, seconds=0, recipe=SummaryRecipe(strategy, "", 1)), store)
    settings = replace(CompactionPolicy(strategy=strategy), on_failure=policy)  # type: ignore[arg-type]
    for messages in (SAID[:5], SAID[:6], SAID[:7], SAID):
        result = await made.compact(order(messages=messages, policy=settings))
        if policy != "deterministic":
            assert result == NotSummarized("too long", overdue=True)
            continue
        assert isinstance(result, Summarized)
        assert result.warning == OVERDUE_WARNING
        assert result.summary.made_by == "extractive"
        assert f"point {'abcdefghi'[len(messages) - 2]}" in result.summary.text
        assert result.tokens <= 200


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n", "<<<", ">>> ", "<<<>>>"])
async def test_marks_in_a_text_cost_a_summary_its_length_and_not_its_being(store: RedisStore, text: str) -> None:
    """They are blunted, which takes more tokens than they had: the text is cut by as much, and never to nothing."""
    result = await compactor(Slow(lambda _: text * 400), store).compact(order())
    assert isinstance(result, Summarized)
    assert result.summary.made_by == "llm"
    assert "more than the summary has space for" in str(result.warning)
    assert result.tokens <= 200


@pytest.mark.anyio
@pytest.mark.parametrize("bound", [64, 100, 400])
async def test_the_bound_holds_whatever_a_strategy_writes(store: RedisStore, bound: int) -> None:
    """``max_summary_tokens`` is enforced on the rendered message."""
    made = compactor(Slow(lambda _: "word " * 5000, seconds=0), store)
    result = await made.compact(order(bound=bound))
    assert isinstance(result, Summarized)
    assert result.tokens <= bound


@pytest.mark.anyio
async def test_of_two_summaries_for_one_prefix_the_first_is_kept_where_it_is_of_use(store: RedisStore) -> None:
    """Another worker's summary is taken over, unless it is beyond this order's bound."""
    first = await compactor(Slow(lambda _: "first " * 60, seconds=0), store).compact(order(bound=200))
    second = await compactor(Slow(lambda _: "second", seconds=0), store).compact(order(bound=200))
    third = await compactor(Slow(lambda _: "third", seconds=0), store).compact(order(bound=70))
    assert isinstance(first, Summarized)
    assert isinstance(second, Summarized)
    assert isinstance(third, Summarized)
    assert second.summary == first.summary
    assert third.summary.text == "third"


@pytest.mark.anyio
async def test_a_stored_summary_that_is_too_large_here_is_replaced(store: RedisStore) -> None:
    """Else it would be made anew with every request, and each time with other bytes (promise 5)."""
    await compactor(Slow(lambda _: "first " * 100, seconds=0), store).compact(order(bound=200))
    slow = Slow(lambda _: "smaller", seconds=0)
    made = compactor(slow, store)
    results = [await made.compact(order(bound=70)) for _ in range(3)]
    assert slow.asked == 1
    assert {result.summary.text for result in results if isinstance(result, Summarized)} == {"smaller"}


@pytest.mark.anyio
async def test_a_client_less_patient_than_its_summarizer_gets_through(store: RedisStore) -> None:
    """Given up once it is cancelled; given up again it goes on, and the next attempt finds it."""
    slow = Slow(seconds=0.2)
    made = compactor(slow, store)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(made.compact(order()), 0.05)
    assert isinstance(await made.compact(order()), Summarized)
    assert (slow.asked, slow.cancelled) == (2, 1)


@pytest.mark.anyio
async def test_a_store_that_cannot_be_written_makes_no_model_work(store: RedisStore) -> None:
    """Full, say: what cannot be kept would be made anew with every request."""
    await store.ask("CONFIG", "SET", "maxmemory", "1mb")
    await store.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    slow = Slow(seconds=0)
    result = await compactor(slow, store).compact(order())
    assert isinstance(result, Summarized)
    assert (result.summary.made_by, result.degraded, slow.asked) == ("extractive", True, 0)
