"""The store's answers are bounded in time, and a busy worker does not take itself for a dead store."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import JUMPING, jumping_loop, pass_seconds
from tidemark.core.errors import StoreUnavailable
from tidemark.store.commands import RECALL_SECONDS, RECORD_SECONDS
from tidemark.store.connection.node import MOST, WRITTEN_BYTES_A_SECOND, LargeStoreCall, RenewingTimeout, StoreCall
from tidemark.store.connection.outage import OutageBackoff


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """All times are exact: no test waits for one, and a busy machine breaks none."""
    return JUMPING


async def test_who_does_not_answer_is_waited_for_no_longer_than_said() -> None:
    """The loop is idle, so nothing else can be the reason."""
    with pytest.raises(TimeoutError), RenewingTimeout(0.1):
        await pass_seconds(5)
    assert jumping_loop().time() == pytest.approx(0.1, abs=0.001)


async def test_an_answer_that_came_in_time_is_taken_however_busy_the_loop_was() -> None:
    """Other work holds the loop for longer than the bound, again and again."""
    answer = asyncio.get_running_loop().create_future()

    async def busy() -> None:
        for _ in range(3):
            jumping_loop().hold(0.15)
            await asyncio.sleep(0)
        answer.set_result(True)

    work = asyncio.create_task(busy())
    with RenewingTimeout(0.1):
        assert await answer
    await work


async def test_a_loop_that_is_always_busy_is_waited_for_a_few_times_only() -> None:
    """A request goes on without its history at last."""
    stop = False

    async def busy() -> None:
        while not stop:
            jumping_loop().hold(0.05)
            await asyncio.sleep(0)

    work = asyncio.create_task(busy())
    with pytest.raises(TimeoutError), RenewingTimeout(0.03):
        await pass_seconds(30)
    stop = True
    await work


async def test_a_store_that_answers_others_is_slow_and_not_gone() -> None:
    """Each answer to anybody begins the wait anew; without one it ends as said."""
    loop = asyncio.get_running_loop()
    with RenewingTimeout(0.1, loop.time):
        await pass_seconds(0.35)
    before = loop.time()
    with pytest.raises(TimeoutError), RenewingTimeout(0.1, lambda: before - 1):
        await pass_seconds(0.35)


async def test_a_store_that_always_answers_others_is_waited_for_sixteen_times_as_long() -> None:
    """``docs/operations.md`` gives both figures: 0.25 s for a dead store, 4 s in all."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(TimeoutError), RenewingTimeout(0.02, loop.time):
        await pass_seconds(30)
    assert loop.time() - started == pytest.approx(16 * 0.02, abs=0.001)
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = {cells[1].strip(): cells[2:4] for line in page.splitlines() if len(cells := line.split("|")) == 5}
    for waits, seconds in (
        ("a request, before it goes upstream", RECALL_SECONDS),
        ("the last byte of an answer, until its turn is stored", RECORD_SECONDS),
    ):
        assert [cell.strip() for cell in rows[waits]] == [f"{seconds:g} s", f"{MOST * seconds:g} s"]


async def test_who_is_cancelled_by_others_meanwhile_is_cancelled() -> None:
    """A client that leaves is no store that is late, even where both happen in one moment."""
    started = asyncio.get_running_loop().create_future()

    async def asked() -> None:
        with RenewingTimeout(0.05):
            started.set_result(None)
            try:
                await pass_seconds(5)
            except asyncio.CancelledError:
                task.cancel()  # by somebody else, before the end of the wait is told
                raise

    task = asyncio.create_task(asked())
    await started
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_an_outer_bound_is_not_taken_for_ones_own() -> None:
    """Each takes back its own cancellation only, and the task goes on as if there had been none."""

    async def asked() -> None:
        with RenewingTimeout(5):
            await pass_seconds(5)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asked(), 0.02)
    task = asyncio.current_task()
    assert task is not None
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError), RenewingTimeout(0.02):
            await pass_seconds(5)
        assert task.cancelling() == 0
        await asyncio.sleep(0)


async def test_what_is_over_is_not_ended_later() -> None:
    """No timer is left behind that would cancel the task in what it does next."""
    with RenewingTimeout(0.02):
        await asyncio.sleep(0)
    await pass_seconds(0.1)


async def test_an_answer_of_the_last_moment_comes_first() -> None:
    """What arrives in the same turn of the loop as the end of the wait is taken."""
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    with RenewingTimeout(0.05):
        loop.call_later(0.04, answer.set_result, "there")
        jumping_loop().hold(0.06)  # both timers are due at once, and not late
        assert await answer == "there"


async def test_of_many_waits_each_ends_in_its_own_time() -> None:
    """One timer looks after all of them, and none is ended with another's."""
    patience, loop = RenewingTimeout(0.1), asyncio.get_running_loop()
    started = loop.time()

    async def asked(after: float, seconds: float) -> float:
        await pass_seconds(after)
        try:
            with patience:
                await pass_seconds(seconds)
        except TimeoutError:
            return loop.time() - started
        return 0.0

    ended = await asyncio.gather(asked(0, 5), asked(0.05, 0.02), asked(0.06, 5), asked(0.12, 0.05), asked(0.15, 5))
    assert ended == pytest.approx([0.1, 0, 0.16, 0, 0.25], abs=0.001)


async def test_a_wait_is_not_shortened_by_the_ones_before_it() -> None:
    """A timer that was set for a wait that is over finds nobody late, and the next end is not forgotten."""
    patience, loop = RenewingTimeout(0.1), asyncio.get_running_loop()
    for _ in range(4):
        with patience:
            await pass_seconds(0.04)
    started = loop.time()
    with pytest.raises(TimeoutError), patience:
        await pass_seconds(5)
    assert loop.time() - started == pytest.approx(0.1, abs=0.001)


def test_a_wait_that_is_thrown_away_with_its_loop_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever closes a loop under its tasks hears of them by asyncio, and of nothing beside."""
    unraised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)

    async def asked(patience: RenewingTimeout) -> None:
        with patience:
            await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    lost = loop.create_task(asked(RenewingTimeout(5)))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del loop, lost
    gc.collect()
    assert unraised == []


async def test_a_task_waits_once_at_a_time() -> None:
    """Two bounds of one patience in one task would be one."""
    patience = RenewingTimeout(1)
    with patience, pytest.raises(RuntimeError), patience:
        pass
    with patience:
        await asyncio.sleep(0)


async def test_a_large_write_is_given_time_by_its_size_and_so_is_what_waits_behind_it() -> None:
    """A record that is late by its own size is no outage: nobody rests for it, and nobody goes on without a history."""
    outage = OutageBackoff()
    large = LargeStoreCall(outage, 0.05, 5 * WRITTEN_BYTES_A_SECOND)
    waits = StoreCall(outage, 0.05)

    async def behind() -> None:
        with waits:
            await pass_seconds(0.3)

    other = asyncio.create_task(behind())
    with large:
        await pass_seconds(0.2)
        await other
    assert not outage.is_away
    with pytest.raises(StoreUnavailable), waits:
        await pass_seconds(5)
    assert outage.is_away, "when the write is over, a silence is an outage again"


async def test_a_large_write_that_never_ends_is_an_outage_all_the_same() -> None:
    """Its time is bounded, and it does not begin anew for its own sake."""
    outage = OutageBackoff()
    with pytest.raises(StoreUnavailable), LargeStoreCall(outage, 0.05, WRITTEN_BYTES_A_SECOND // 10):
        await pass_seconds(30)
    assert jumping_loop().time() == pytest.approx(0.05 + 0.1, abs=0.001)
    assert outage.is_away
