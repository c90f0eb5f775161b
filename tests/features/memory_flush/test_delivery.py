"""Delivery: at least once, in order within a conversation, with back-off and dead letters, by one worker of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.features.memory_flush.conftest import entry
from tests.support.waiting import until
from tidemark.core.errors import FlushNotTaken, FlushRefused
from tidemark.core.events import Event
from tidemark.core.flush_events import FlushBuried, FlushDelivered, FlushFailed, FlushLost, FlushWaiting
from tidemark.core.ports import FlushEntry
from tidemark.delivery.consumer import RetryWaits
from tidemark.delivery.courier import PAGE, Courier
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.delivery.recovery import Recovery
from tidemark.delivery.worker import FlushWorker, QueueWatch
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey

QUICK = RetryWaits(first=0.02, longest=0.1, attempts=4)


class Taker:
    """A consumer that does as it is told with each entry, then takes it."""

    def __init__(self, name: str = "taker") -> None:
        self.name = name
        self.failures: dict[int, list[Exception]] = {}
        self.offered: list[tuple[str, int, int]] = []
        self.taken: list[tuple[str, int]] = []
        self.closed = False
        self.hold = asyncio.Event()
        self.hold.set()

    async def deliver(self, entry: FlushEntry, attempt: int) -> None:
        """Take an entry, or not."""
        number = int(entry.key, 16)
        self.offered.append((entry.conversation, number, attempt))
        if self.failures.get(number):
            raise self.failures[number].pop(0)
        await self.hold.wait()
        self.taken.append((entry.conversation, number))

    async def aclose(self) -> None:
        """Remember that it was closed."""
        self.closed = True


Start = Callable[..., FlushWorker]


@pytest.fixture
async def facts(anyio_backend: str) -> list[Event]:
    """The facts that were emitted."""
    return []


@pytest.fixture
async def start(queue: RedisFlushQueue, store: RedisStore, facts: list[Event]) -> AsyncIterator[Start]:
    """Starts workers; all are stopped in the end."""
    workers: list[FlushWorker] = []

    def begin(*takers: Taker, lease_seconds: float = 10.0, name: str = "one") -> FlushWorker:
        couriers = [Courier(one, queue, name, waits=QUICK, emit=facts.append, clock=lambda: 0.0) for one in takers]
        worker = FlushWorker(
            queue,
            couriers,
            Recovery(queue, store, emit=facts.append, clock=lambda: 0.0),
            reader=name,
            emit=facts.append,
            lease_seconds=lease_seconds,
            poll_seconds=0.02,
        )
        worker.start()
        workers.append(worker)
        return worker

    yield begin
    for worker in workers:
        await worker.aclose()


async def test_every_consumer_takes_every_entry(queue: RedisFlushQueue, start: Start, facts: list[Event]) -> None:
    """Each at its own pace."""
    one, other = Taker("one"), Taker("other")
    start(one, other)
    for number in range(70):
        await queue.add(entry(number, f"c{number % 3}"))
    await until(lambda: len([fact for fact in facts if isinstance(fact, FlushDelivered)]) == 140)
    assert len(one.taken) == len(other.taken) == 70
    assert sorted(number for _, number in one.taken) == list(range(70))


async def test_an_entry_that_fails_holds_up_its_own_conversation_only(queue: RedisFlushQueue, start: Start) -> None:
    """And is taken before those that came after it."""
    taker = Taker()
    taker.failures = {0: [FlushNotTaken("not now"), ValueError("ours"), FlushNotTaken("not yet")]}
    for number in range(6):
        await queue.add(entry(number, f"c{number % 2}"))
    start(taker)
    await until(lambda: len(taker.taken) == 6)
    assert [number for name, number in taker.taken if name == "c0"] == [0, 2, 4]
    assert [number for name, number in taker.taken if name == "c1"] == [1, 3, 5]
    assert [attempt for _, number, attempt in taker.offered if number == 0] == [1, 2, 3, 4]
    assert taker.taken.index(("c1", 5)) < taker.taken.index(("c0", 0))


async def test_a_conversation_with_many_entries_that_wait_keeps_no_other_out(
    queue: RedisFlushQueue, start: Start
) -> None:
    """What waits behind an entry that is not taken is more than is read at once."""
    taker = Taker()
    taker.failures = {0: [FlushNotTaken("not now", retry_after=30)]}
    for number in range(3 * PAGE):
        await queue.add(entry(number, "c0"))
    await queue.add(entry(3 * PAGE, "c1"))
    start(taker)
    await until(lambda: taker.taken == [("c1", 3 * PAGE)])


async def test_after_its_attempts_an_entry_is_a_dead_letter(
    queue: RedisFlushQueue, start: Start, facts: list[Event]
) -> None:
    """With the reason of the last one; the conversation goes on, and a replay delivers it."""
    taker = Taker()
    taker.failures = {0: [RuntimeError("quotes a conversation")] * QUICK.attempts}
    start(taker)
    await queue.add(entry(0))
    await queue.add(entry(1))
    await until(lambda: taker.taken == [("c1", 1)])
    (letter,) = [one async for one in queue.dead()]
    assert (letter.consumer, letter.reason, letter.attempts) == ("taker", "RuntimeError", QUICK.attempts)
    assert len([fact for fact in facts if isinstance(fact, FlushFailed)]) == QUICK.attempts - 1
    assert [fact.reason for fact in facts if isinstance(fact, FlushBuried)] == ["RuntimeError"]
    assert await queue.replay(letter.entry.id, dead=True)
    await until(lambda: taker.taken == [("c1", 1), ("c1", 0)])


async def test_nonsense_is_a_dead_letter_at_once(queue: RedisFlushQueue, start: Start) -> None:
    """Nothing is lost: it can be replayed."""
    taker = Taker()
    taker.failures = {0: [FlushRefused("it returned str, and not None or True")]}
    start(taker)
    await queue.add(entry(0))
    await until(lambda: len(taker.offered) == 1)
    await queue.add(entry(1))
    await until(lambda: len(taker.taken) == 1)
    assert [one.reason async for one in queue.dead()] == ["it returned str, and not None or True"]


async def test_what_is_forgotten_between_two_attempts_is_not_delivered_again(
    queue: RedisFlushQueue, start: Start, facts: list[Event]
) -> None:
    """Nor does it come back as a dead letter; other conversations go on."""
    taker = Taker()
    taker.failures = {0: [FlushNotTaken("not now", retry_after=0.3)] * QUICK.attempts}
    worker = start(taker)
    await queue.add(entry(0, "gone"))
    await queue.add(entry(1, "gone"))
    worker.nudge()
    await until(lambda: len(taker.offered) == 1)
    await queue.forget({"gone"})
    await queue.add(entry(2, "kept"))

    async def is_empty() -> bool:
        (one,) = (await queue.state()).consumers
        return one.pending + one.waiting == 0

    await until(is_empty)
    assert taker.offered == [("gone", 0, 1), ("kept", 2, 1)]
    assert [one async for one in queue.dead()] == []
    assert not [fact for fact in facts if isinstance(fact, FlushBuried)]


async def test_what_is_replayed_for_one_consumer_reaches_no_other(queue: RedisFlushQueue, start: Start) -> None:
    """The others take it as done."""
    one, other = Taker("one"), Taker("other")
    start(one, other)
    await queue.add(entry(1))
    await until(lambda: len(one.taken) == len(other.taken) == 1)
    ((first,)) = [seen.id for seen in await queue.newest(1)]
    await queue.replay(first, dead=False, only="one")
    await queue.add(entry(2))
    await until(lambda: len(one.taken) == 3 and len(other.taken) == 2)
    assert [number for _, number in other.taken] == [1, 2]


async def test_one_worker_of_all_delivers_and_another_follows(queue: RedisFlushQueue, start: Start) -> None:
    """One that stops gives way at once, and what it was given and did not finish is the other's."""
    first, second = Taker(), Taker()
    one = start(first, name="one")
    await until(lambda: one.leads)
    two = start(second, name="two", lease_seconds=0.3)
    first.hold.clear()
    for number in range(5):
        await queue.add(entry(number, f"c{number}"))
    await until(lambda: len(first.offered) == 4)
    assert not two.leads
    await one.aclose()
    assert first.closed
    await until(lambda: len(second.taken) == 5)
    assert sorted(number for _, number in second.taken) == list(range(5))


async def test_an_entry_that_ends_every_process_is_a_dead_letter_in_the_end(
    queue: RedisFlushQueue, start: Start
) -> None:
    """Attempts are counted before they are made, so a crash counts too."""
    await queue.add(entry(0))
    (given,) = await queue.read("taker", "dead", 1)
    for _ in range(QUICK.attempts):
        await queue.begin("taker", given)
    taker = Taker()
    start(taker)
    await queue.add(entry(1))
    await until(lambda: len(taker.taken) == 1)
    assert taker.offered == [("c1", 1, 1)]
    assert [one.attempts async for one in queue.dead()] == [QUICK.attempts]


async def test_redis_may_be_killed_and_started_again_while_entries_are_delivered(
    queue: RedisFlushQueue, start: Start, valkey: EmbeddedValkey
) -> None:
    """Append-only: what was added is there, with its attempts; what was taken meanwhile is told when it is back."""
    taker = Taker()
    start(taker)
    taker.hold.clear()
    for number in range(3):
        await queue.add(entry(number, f"c{number}"))
    await until(lambda: len(taker.offered) == 3)
    assert valkey.pid is not None
    await asyncio.to_thread(_kill, valkey)
    taker.hold.set()
    await until(lambda: len(taker.taken) == 3)
    await asyncio.to_thread(valkey.start)
    await until(lambda: valkey.pid is not None)

    async def settled() -> bool:
        try:
            (one,) = (await queue.state()).consumers
        except Exception:  # noqa: BLE001 - the store rests for a while after its failure
            return False
        return (one.waiting, one.pending, one.delivered) == (0, 0, 3)

    await until(settled)


async def test_waits_double_up_to_the_longest_and_heed_the_consumer() -> None:
    """A wait is what the consumer asked for where that is longer, but never longer than the longest."""
    waits = RetryWaits()
    assert [waits.before(attempt) for attempt in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert waits.before(1, retry_after=17) == 17
    assert waits.before(1, retry_after=10**9) == 300
    assert waits.before(10**6) == 300


async def test_losses_and_lengths_are_told(store: RedisStore, facts: list[Event]) -> None:
    """Once for each change, since somebody should widen the bounds or mend the consumer."""
    tight = RedisFlushQueue(store.ask, Codec(), ttl_seconds=60, bounds=QueueBounds(2, 10**8))
    watch = QueueWatch(tight, facts.append)
    await tight.add(entry(0))
    await tight.read("slow", "one", 1)
    await watch.report()
    for number in range(1, 4):
        await tight.add(entry(number))
    await watch.report()
    await watch.report()
    assert [(fact.consumer, fact.entries) for fact in facts if isinstance(fact, FlushLost)] == [("slow", 2)]
    waiting = [fact for fact in facts if isinstance(fact, FlushWaiting)]
    assert [fact.lost for fact in waiting] == [0, 2, 2]
    assert waiting[0].entries == 1
    assert waiting[0].seconds >= 0


def _kill(valkey: EmbeddedValkey) -> None:
    process = valkey._process  # noqa: SLF001 - nothing public kills a store
    assert process is not None
    process.kill()
    process.wait()
    valkey.stop()
