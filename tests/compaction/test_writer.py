"""Whose failures are counted, and for how long a summarizer is left alone for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.compaction.test_immediate import COUNTER, Slow, order
from tidemark.compaction.order import CompactionOrder, NotSummarized
from tidemark.compaction.writer import SummaryWriter
from tidemark.core.conversation.summary import SummaryRecipe
from tidemark.core.errors import SummaryRejected
from tidemark.core.events import Event, Listener, SummaryFailed
from tidemark.core.planning.budget import CompactionPolicy
from tidemark.core.ports import Caller, SummaryTask
from tidemark.summarizers import ExtractiveSummarizer, PlainSummarizer
from tidemark.summarizers.receipts import ReceiptWriter

HALF = CompactionPolicy(strategy="llm", summarizer_timeout_seconds=0.2)


@pytest.fixture
def anyio_backend() -> str:
    """The flow belongs to asyncio."""
    return "asyncio"


def writer(strategy: Slow, emit: Listener = lambda _: None) -> SummaryWriter:
    """A writer whose models all use ``strategy``."""
    return SummaryWriter(
        choose=lambda _, __: strategy,
        fallback=ExtractiveSummarizer(COUNTER),
        plain=PlainSummarizer(COUNTER),
        counter=COUNTER,
        emit=emit,
        timer=lambda: 0.0,
        write_receipt=ReceiptWriter().receipt,
    )


def refusing(_: SummaryTask) -> str:
    """A strategy that fails."""
    raise SummaryRejected("no")


async def failed(made: SummaryWriter, strategy: Slow, wanted: CompactionOrder, times: int = 3) -> None:
    """Fail so often."""
    for _ in range(times):
        assert isinstance(await made.write(wanted, strategy), NotSummarized)


@pytest.mark.anyio
async def test_a_summarizer_that_hangs_for_half_of_its_time_has_failed() -> None:
    """The default wait is half of the summarizer's time, and a little of it is always gone."""
    slow = Slow(seconds=5)
    made, wanted = writer(slow), order(policy=HALF)
    for _ in range(3):
        assert isinstance(await made.write(wanted, slow, 0.099), NotSummarized)
    assert not made.admits(wanted)


@pytest.mark.anyio
async def test_one_that_was_cut_short_has_not() -> None:
    """Who gave it no time learned nothing of it."""
    slow = Slow(seconds=5)
    made, wanted = writer(slow), order(policy=HALF)
    for _ in range(5):
        assert isinstance(await made.write(wanted, slow, 0.01), NotSummarized)
    assert made.admits(wanted)


@pytest.mark.anyio
async def test_a_client_that_leaves_closes_no_breaker() -> None:
    """Its call began before the failures of others."""
    slow = Slow(answer=refusing, seconds=0.0)
    made, wanted = writer(slow), order()
    hanging = Slow(seconds=5, recipe=slow.recipe)
    leaving = asyncio.create_task(made.write(wanted, hanging))
    await asyncio.sleep(0)
    await failed(made, slow, wanted)
    assert made.resting() == 1
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert made.resting() == 1


@pytest.mark.anyio
async def test_each_model_and_each_credential_has_a_breaker_of_its_own() -> None:
    """``auto`` names no model, so the conversation's own counts."""
    slow = Slow(answer=refusing, seconds=0.0, recipe=SummaryRecipe("llm", "general", 1, "auto"))
    made, wanted = writer(slow), order()
    await failed(made, slow, wanted)
    assert not made.admits(wanted)
    assert made.admits(replace(wanted, route=replace(wanted.route, upstream_model="other")))
    assert made.admits(replace(wanted, caller=Caller(b"another", ())))


@pytest.mark.anyio
async def test_where_a_strategy_slipped_is_logged_and_what_it_said_is_not() -> None:
    """An error's words may quote a conversation; without the place nobody could find its cause."""

    def slipping(_: SummaryTask) -> str:
        return {"a": "b"}["a secret of the conversation"]

    told: list[Event] = []
    slow = Slow(answer=slipping)
    assert isinstance(await writer(slow, told.append).write(order(policy=HALF), slow), NotSummarized)
    (failure,) = [event for event in told if isinstance(event, SummaryFailed)]
    assert failure.reason == "the summarizer failed: KeyError"
    assert "slipping" in failure.detail
    assert "secret" not in str(failure)
