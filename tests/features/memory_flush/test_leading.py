"""Who leads: one worker of all, for as long as it holds the lease, whatever its work is busy with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest

from tests.features.memory_flush.conftest import entry
from tests.features.memory_flush.test_delivery import QUICK, Taker
from tests.support.waiting import until
from tidemark.core.events import Event
from tidemark.core.ports import FlushEntry
from tidemark.delivery import worker
from tidemark.delivery.courier import Courier
from tidemark.delivery.queue import RedisFlushQueue
from tidemark.delivery.recovery import Recovery
from tidemark.delivery.worker import FlushWorker
from tidemark.store.conversations import RedisStore

LEASE_SECONDS = 1.2


class Notes(RedisFlushQueue):
    """The queue of one worker, whose sweep over the notes can be made to take long."""

    def __init__(self, queue: RedisFlushQueue) -> None:
        vars(self).update(vars(queue))
        self.free = asyncio.Event()
        self.free.set()
        self.swept = 0

    async def intents(self) -> Mapping[str, bytes]:
        """What a sweep begins with."""
        self.swept += 1
        await self.free.wait()
        return await super().intents()


Start = Callable[[str, RedisFlushQueue, Taker], FlushWorker]


@pytest.fixture
async def start(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Starts workers that sweep all the time; all are stopped in the end."""
    monkeypatch.setattr(worker, "SWEEP_SECONDS", 0.05)
    workers: list[FlushWorker] = []
    told: list[Event] = []

    def begin(name: str, queue: RedisFlushQueue, taker: Taker) -> FlushWorker:
        courier = Courier(taker, queue, name, waits=QUICK, emit=told.append, clock=lambda: 0.0)
        recovery = Recovery(queue, store, emit=told.append, clock=lambda: 0.0)
        made = FlushWorker(
            queue, [courier], recovery, reader=name, emit=told.append, lease_seconds=LEASE_SECONDS, poll_seconds=0.02
        )
        made.start()
        workers.append(made)
        return made

    yield begin
    for one in workers:
        await one.aclose()


async def test_a_sweep_that_is_longer_than_the_lease_makes_no_second_leader(
    queue: RedisFlushQueue, start: Start
) -> None:
    """The lease is renewed meanwhile; each entry is delivered once, by the same worker, in order."""
    slow, first, second = Notes(queue), Taker(), Taker()
    one = start("one", slow, first)
    await until(lambda: one.leads)
    two = start("two", queue, second)
    slow.free.clear()
    swept = slow.swept
    await until(lambda: slow.swept > swept)
    await asyncio.sleep(2 * LEASE_SECONDS)
    for number in range(5):
        await queue.add(entry(number))
    assert (one.leads, two.leads) == (True, False)
    slow.free.set()
    await until(lambda: len(first.taken) == 5)
    assert [number for _, number in first.taken] == list(range(5))
    assert second.offered == []


async def test_who_loses_the_lease_lets_go_of_everything_in_the_middle_of_a_sweep(
    store: RedisStore, queue: RedisFlushQueue, start: Start
) -> None:
    """What it held and did not finish is the next leader's, and it is given nothing more."""
    slow, first, second = Notes(queue), Taker(), Taker()
    one = start("one", slow, first)
    first.hold.clear()
    await queue.add(entry(0))
    await until(lambda: len(first.offered) == 1)
    slow.free.clear()
    swept = slow.swept
    await until(lambda: slow.swept > swept)
    await store.ask("SET", "tm:{flush}:l", "two", "PX", 60_000)
    await until(lambda: not one.leads)
    two = start("two", queue, second)
    await queue.add(entry(1))
    await until(lambda: len(second.taken) == 2)
    slow.free.set()
    first.hold.set()
    await asyncio.sleep(LEASE_SECONDS)
    assert (one.leads, two.leads) == (False, True)
    assert [number for _, number in second.taken] == [0, 1]
    assert first.taken == []
    assert len(first.offered) == 1


async def test_who_cannot_renew_the_lease_is_given_nothing_more(
    queue: RedisFlushQueue, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know whether it leads; once it does, it goes on."""
    taker = Taker()
    one = start("one", queue, taker)
    await until(lambda: one.leads)

    async def failing(reader: str, seconds: float) -> bool:
        raise OSError(reader, seconds)

    with monkeypatch.context() as patched:
        patched.setattr(queue, "lead", failing)
        await asyncio.sleep(LEASE_SECONDS)
        await asyncio.sleep(0.1)
        await queue.add(entry(0))
        await asyncio.sleep(0.2)
        assert taker.offered == []
    await until(lambda: len(taker.taken) == 1)


async def test_who_was_cut_off_takes_nothing_over_before_its_lease_is_renewed(
    queue: RedisFlushQueue, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim failed while the store was away; when that is back, another one may lead and hold everything."""
    claims: list[str] = []
    away, leading, claiming = asyncio.Event(), queue.lead, queue.claim

    async def lead(reader: str, seconds: float) -> bool:
        if away.is_set():
            raise OSError(reader)
        return await leading(reader, seconds)

    async def claim(consumer: str, reader: str, idle_seconds: float) -> Sequence[FlushEntry]:
        claims.append(reader)
        if len(claims) == 1:
            away.set()
            raise OSError(consumer)
        return await claiming(consumer, reader, idle_seconds)

    monkeypatch.setattr(queue, "lead", lead)
    monkeypatch.setattr(queue, "claim", claim)
    one = start("one", queue, Taker())
    await until(lambda: len(claims) > 0)
    await asyncio.sleep(LEASE_SECONDS)
    tried = len(claims)
    await asyncio.sleep(0.2)
    assert len(claims) == tried
    away.clear()
    await until(lambda: one.leads and len(claims) > tried)
