"""One way to make a summary: what each trigger stores, flushes and reports, and that nothing else makes one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.compaction.test_immediate import COUNTER, Slow, order
from tidemark.compaction.compactor import Compactor
from tidemark.compaction.order import NotSummarized, Summarized, Trigger
from tidemark.compaction.storing import SummaryStorage
from tidemark.compaction.writer import SummaryWriter
from tidemark.core.conversation.flush import Flush
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.errors import StoreUnavailable, SummaryRejected
from tidemark.core.events import CompactionStarted, ConversationCompacted, Event, StoreDegraded, SummaryPrepared
from tidemark.core.planning.budget import CompactionPolicy
from tidemark.core.ports import SummaryTask
from tidemark.summarizers import ExtractiveSummarizer, PlainSummarizer
from tidemark.summarizers.receipts import ReceiptWriter

PROXY = Path(__file__).parents[2] / "proxy" / "tidemark"


@pytest.fixture
def anyio_backend() -> str:
    """The flow belongs to asyncio."""
    return "asyncio"


@dataclass
class Ports:
    """A store and a flush that note in which order they are called."""

    calls: list[str] = field(default_factory=list)
    fails: bool = False

    async def keep_summary(self, *given: Any, waiting: bool = False, **_: Any) -> PrefixSummary | None:
        """Note the call."""
        self.calls.append("prepare" if waiting else "keep")
        if self.fails:
            raise StoreUnavailable("no store")
        stored: PrefixSummary = given[3]
        return stored

    async def replace(self, *_: object, **__: object) -> None:
        """Note the call."""
        self.calls.append("replace")
        if self.fails:
            raise StoreUnavailable("no store")

    async def intend(self, _: Flush) -> None:
        """Note the call."""
        self.calls.append("intend")

    def put(self, flush: Flush) -> None:
        """Note the call."""
        self.calls.append("put" if flush.stored else "put, not stored")


def refuses(_: SummaryTask) -> str:
    """A strategy that fails."""
    raise SummaryRejected("no")


def compactor(strategy: Slow, ports: Any, events: list[Event]) -> Compactor:
    """A compactor over recording ports."""
    writer = SummaryWriter(
        choose=lambda _, __: strategy,
        fallback=ExtractiveSummarizer(COUNTER),
        plain=PlainSummarizer(COUNTER),
        counter=COUNTER,
        emit=events.append,
        timer=lambda: 0.0,
        write_receipt=ReceiptWriter().receipt,
    )
    storage = SummaryStorage(store=ports, replace_stored=ports.replace, emit=events.append, flushes=[ports])
    return Compactor(writer=writer, counter=COUNTER, emit=events.append, clock=lambda: 1.0, storage=storage)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("trigger", "calls", "event"),
    [
        (Trigger.REQUEST, ["keep", "intend", "put"], ConversationCompacted),
        (Trigger.PREPARATION, ["prepare"], SummaryPrepared),
        (Trigger.MANUAL, ["intend", "replace", "put"], ConversationCompacted),
        (Trigger.OFFLINE, [], ConversationCompacted),
    ],
)
async def test_each_trigger_stores_flushes_and_reports_in_its_order(
    trigger: Trigger, calls: list[str], event: type[Event]
) -> None:
    """A summary is announced as it begins, and reported once it is stored."""
    ports, events = Ports(), list[Event]()
    made = compactor(Slow(seconds=0), ports, events)
    result = await made.make(made.begin(order(), trigger))
    assert isinstance(result, Summarized)
    assert result.summary.created_at == 1.0
    assert result.degraded is (trigger is Trigger.OFFLINE)
    assert ports.calls == calls
    assert [type(fact) for fact in events] == [CompactionStarted, event]


@pytest.mark.anyio
async def test_a_failure_means_what_the_trigger_says() -> None:
    """A request gets a substitute; a preparation and a compaction by hand change nothing; offline the error is told."""
    ports, events = Ports(), list[Event]()
    made = compactor(Slow(refuses, seconds=0), ports, events)
    wanted = order(policy=CompactionPolicy(strategy="llm", on_failure="deterministic"))
    for trigger in (Trigger.PREPARATION, Trigger.MANUAL):
        assert isinstance(await made.make(made.begin(wanted, trigger)), NotSummarized)
    assert ports.calls == []
    with pytest.raises(SummaryRejected):
        await made.make(made.begin(wanted, Trigger.OFFLINE))
    result = await made.make(made.begin(wanted, Trigger.REQUEST))
    assert isinstance(result, Summarized)
    assert (result.summary.made_by, result.summary.recipe.strategy) == ("extractive", "llm")


@pytest.mark.anyio
async def test_a_store_that_fails_means_what_the_trigger_says() -> None:
    """A request goes on with a summary that is not stored; all others report the failure, and flush nothing."""
    ports, events = Ports(fails=True), list[Event]()
    made = compactor(Slow(seconds=0), ports, events)
    result = await made.make(made.begin(order(), Trigger.REQUEST))
    assert isinstance(result, Summarized)
    assert result.degraded
    assert "put, not stored" in ports.calls
    assert any(isinstance(event, StoreDegraded) for event in events)
    for trigger in (Trigger.PREPARATION, Trigger.MANUAL):
        ports.calls.clear()
        with pytest.raises(StoreUnavailable):
            await made.make(made.begin(order(), trigger))
        assert not [call for call in ports.calls if call.startswith("put")]


@pytest.mark.anyio
async def test_a_summary_written_without_a_model_is_found_under_the_usual_recipe() -> None:
    """So that the operator's summary serves the tenant's next request."""
    slow = Slow(seconds=0, recipe=SummaryRecipe("llm", "general", 1, "slow"))
    made = compactor(slow, Ports(), [])
    result = await made.make(made.begin(order(), Trigger.MANUAL, deterministic=True))
    assert isinstance(result, Summarized)
    assert (result.summary.made_by, result.summary.recipe, slow.asked) == ("extractive", slow.recipe, 0)


@pytest.mark.anyio
async def test_an_order_that_cannot_be_stored_is_written_the_same_for_the_same_request() -> None:
    """Without a store the fallback writes it, and its recipe says so."""
    slow, ports = Slow(seconds=0), Ports()
    made = compactor(slow, ports, [])
    run = made.degrade(made.begin(order(), Trigger.REQUEST))
    first, second = await made.make(run), await made.make(replace(run))
    assert isinstance(first, Summarized)
    assert isinstance(second, Summarized)
    assert first.summary == second.summary
    assert (first.summary.recipe.strategy, slow.asked) == ("extractive", 0)
    assert ports.calls == ["put, not stored"] * 2


def calls_of(name: str) -> Iterator[str]:
    """Every place under ``proxy/`` that calls something by that name, as its file."""
    for path in sorted(PROXY.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if f"{name}(" in source else ():
            if isinstance(node, ast.Call):
                called = node.func
                if name == (called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")):
                    yield str(path.relative_to(PROXY))


@pytest.mark.parametrize("event", ["CompactionStarted", "ConversationCompacted", "SummaryPrepared"])
def test_the_events_of_a_compaction_are_emitted_in_one_place(event: str) -> None:
    """Whoever wants a summary: now, ahead, by hand or offline."""
    assert list(calls_of(event)) == ["compaction/compactor.py"]


def test_a_record_of_a_new_summary_is_built_in_one_place() -> None:
    """The store decodes records, and plans and forecasts expect some that have no text; nothing else builds any."""
    assert sorted(set(calls_of("PrefixSummary"))) == [
        "compaction/record.py",
        "core/planning/forecast.py",
        "core/planning/plan.py",
        "store/summary_fields.py",
    ]


@pytest.mark.anyio
async def test_a_compaction_by_hand_is_reported_as_manual_however_it_is_made() -> None:
    """It is often made as for a request, and no request waits for it."""
    events = list[Event]()
    made = compactor(Slow(seconds=0), Ports(), events)
    await made.make(made.begin(replace(order(), by_hand=True), Trigger.REQUEST))
    assert [fact.trigger for fact in events if isinstance(fact, CompactionStarted | ConversationCompacted)] == [
        "manual",
        "manual",
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_that_was_read_outlasts_its_compaction(*, fails: bool) -> None:
    """The strategy and the receipt share it; afterwards it is gone, also where the compaction failed."""

    def reads(task: SummaryTask) -> str:
        assert task.reading is not None
        task.reading.keep("text", [], by_user=True)
        return refuses(task) if fails else "a summary"

    made, ordered = compactor(Slow(reads, seconds=0), Ports(), []), order(policy=CompactionPolicy(strategy="llm"))
    if fails:
        with pytest.raises(SummaryRejected):
            await made.make(made.begin(ordered, Trigger.OFFLINE))
    else:
        await made.make(made.begin(ordered, Trigger.REQUEST))
    assert ordered.reading.phrases("text", by_user=True) is None
    assert ordered.reading.phrases("text", by_user=False) is None
