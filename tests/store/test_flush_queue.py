"""The flush queue in Redis: bounded, added once, given to every consumer, its losses counted; on a cluster too."""

from __future__ import annotations

import pytest
import redis

from tests.store.conftest import is_older
from tests.support.rights import USER
from tests.support.sealing import TAG, XorCipher
from tests.support.waiting import until
from tidemark.core.errors import StoreUnavailable
from tidemark.core.ports import FlushEntry
from tidemark.delivery.queue import PAGE, QueueBounds, RedisFlushQueue
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

ROOMY = QueueBounds(1000, 10**9)


def entry(number: int, conversation: str = "c" * 48, size: int = 20) -> FlushEntry:
    """An entry like any other."""
    return FlushEntry(f"{number:032x}", "t" * 32, conversation, b"x" * size, at=float(number))


def allow(admin: redis.Redis, command: str) -> None:
    """Let everybody send a command (``+xadd``), or nobody; what was refused is not counted."""
    for name in ("default", USER):
        admin.execute_command("ACL", "SETUSER", name, command)  # type: ignore[no-untyped-call]
    admin.acl_log_reset()


def keys_of(entries: list[FlushEntry]) -> list[int]:
    """The numbers that they were made of."""
    return [int(one.key, 16) for one in entries]


@pytest.fixture
async def queue(store: RedisStore) -> RedisFlushQueue:
    """An empty queue whose bounds no test reaches."""
    for key in ("s", "d", "o", "n", "l", *(f"a:{one}" for one in "ab"), *(f"k:{number:032x}" for number in range(99))):
        await store.ask("DEL", f"tm:{{flush}}:{key}")
    return RedisFlushQueue(store.ask, Codec(), ttl_seconds=60, bounds=ROOMY)


async def test_an_entry_is_added_once_for_its_key(queue: RedisFlushQueue) -> None:
    """The second time nothing is appended, and the note of it is gone."""
    await queue.intend("", entry(1).key, b"note")
    assert await queue.intents() == {entry(1).key: b"note"}
    assert await queue.add(entry(1))
    assert not await queue.add(entry(1))
    assert await queue.intents() == {}
    assert (await queue.state()).length == 1


async def test_a_key_without_a_body_is_only_marked(queue: RedisFlushQueue) -> None:
    """Nothing leaves: nothing is delivered, now or later."""
    assert await queue.add(FlushEntry(entry(1).key, "t", "c", b"", 0.0))
    assert not await queue.add(entry(1))
    assert (await queue.state()).length == 0


async def test_every_consumer_is_given_every_entry_in_order(queue: RedisFlushQueue) -> None:
    """A consumer that comes later begins with the oldest that the queue holds."""
    for number in range(3):
        await queue.add(entry(number))
    first = await queue.read("a", "one", 10)
    assert keys_of(list(first)) == [0, 1, 2]
    assert first[0].body == entry(0).body
    assert await queue.read("a", "one", 10) == []
    assert keys_of(list(await queue.read("b", "one", 10))) == [0, 1, 2]


async def test_what_a_dead_reader_held_is_anothers(queue: RedisFlushQueue) -> None:
    """All of it, in order, over many pages; what was taken is not offered again."""
    total = 2 * PAGE + 3
    for number in range(total):
        await queue.add(entry(number))
    held = [one for _ in range(3) for one in await queue.read("a", "dead", PAGE)]
    await queue.done("a", held[0])
    claimed = await queue.claim("a", "alive", 0)
    assert keys_of(list(claimed)) == list(range(1, total))
    assert await queue.claim("a", "third", 60) == []


async def test_attempts_survive_their_reader(queue: RedisFlushQueue) -> None:
    """They are counted before they are made, and forgotten when the entry is done."""
    await queue.add(entry(1))
    (given,) = await queue.read("a", "one", 1)
    assert [await queue.begin("a", given), await queue.begin("a", given)] == [1, 2]
    await queue.done("a", given)
    assert await queue.begin("a", given) == 1


async def test_a_dead_letter_is_kept_with_its_reason_and_can_be_replayed(queue: RedisFlushQueue) -> None:
    """For the consumer that it died of, and nobody else; once."""
    await queue.add(entry(1))
    (given,) = await queue.read("a", "one", 1)
    await queue.bury("a", given, "no use", 8)
    await queue.bury("a", given, "no use", 8)
    (letter,) = [one async for one in queue.dead()]
    assert (letter.consumer, letter.reason, letter.attempts, letter.entry.body) == ("a", "no use", 8, given.body)
    assert letter.died_at > 1e9
    assert await queue.claim("a", "two", 0) == []
    assert await queue.replay(letter.entry.id, dead=True)
    assert not await queue.replay(letter.entry.id, dead=True)
    (again,) = await queue.read("a", "one", 1)
    assert (again.key, again.only, again.body) == (given.key, "a", given.body)
    assert [one async for one in queue.dead()] == []


async def test_the_oldest_make_way_and_are_counted_as_lost(store: RedisStore, queue: RedisFlushQueue) -> None:
    """For each consumer that had not taken them; what was taken is no loss."""
    bounded = RedisFlushQueue(store.ask, Codec(), ttl_seconds=60, bounds=QueueBounds(3, 10**9))
    await bounded.add(entry(1))
    (given,) = await bounded.read("a", "one", 1)
    await bounded.done("a", given)
    await bounded.read("b", "one", 1)
    for number in range(2, 6):
        await bounded.add(entry(number))
    state = await bounded.state()
    assert state.length == 3
    assert {one.name: one.lost for one in state.consumers} == {"a": 1, "b": 2}
    assert keys_of(list(await bounded.newest(10))) == [3, 4, 5]


async def test_the_queue_is_bounded_in_bytes_too(store: RedisStore, queue: RedisFlushQueue) -> None:
    """The newest entry stays, however large it is."""
    bounded = RedisFlushQueue(store.ask, Codec(), ttl_seconds=60, bounds=QueueBounds(1000, 40))
    for number in range(5):
        await bounded.add(entry(number))
    state = await bounded.state()
    assert state.length < 5
    assert state.bytes_held <= 40
    tight = RedisFlushQueue(store.ask, Codec(), ttl_seconds=60, bounds=QueueBounds(1000, 1))
    await tight.add(entry(9))
    assert keys_of([one async for one in tight.since("-")]) == [9]


async def test_the_state_tells_what_waits_and_since_when(queue: RedisFlushQueue, url: str) -> None:
    """Waiting, pending, taken; the age is the oldest's. Redis 6.2 does not count what waits."""
    one_waits = -1 if is_older(url, (7,)) else 1
    assert (await queue.state()).consumers == []
    await queue.add(entry(1))
    await queue.add(entry(2))
    (given,) = await queue.read("a", "one", 1)
    (one,) = (await queue.state()).consumers
    assert (one.waiting, one.pending) == (one_waits, 1)
    oldest = one.oldest_at
    await queue.done("a", given)
    (one,) = (await queue.state()).consumers
    assert (one.waiting, one.pending, one.delivered) == (one_waits, 0, 1)
    assert oldest is not None
    assert one.oldest_at is not None
    assert one.oldest_at >= oldest
    (given,) = await queue.read("a", "one", 1)
    await queue.done("a", given, delivered=False)
    (one,) = (await queue.state()).consumers
    assert (one.waiting, one.pending, one.oldest_at, one.delivered) == (0, 0, None, 1)


async def test_one_reader_of_all_leads(queue: RedisFlushQueue) -> None:
    """Until it gives that up, or is silent for too long."""
    assert await queue.lead("one", 60)
    assert not await queue.lead("two", 60)
    assert await queue.lead("one", 0.05)
    await until(lambda: queue.lead("two", 60))
    assert not await queue.lead("one", 60)
    assert not await queue.lead("two", 0)
    assert await queue.lead("one", 60)


async def test_a_conversation_is_forgotten_in_all_parts(queue: RedisFlushQueue) -> None:
    """Queue, dead letters, notes; others' stay."""
    gone, kept = "a" * 48, "b" * 48
    for number in range(40):
        await queue.add(entry(number, gone if number % 2 else kept))
    (first, second) = await queue.read("a", "one", 2)
    await queue.bury("a", first, "r", 1)
    await queue.bury("a", second, "r", 1)
    await queue.intend("", "k", b'{"conversation":"' + gone.encode() + b'"}')
    await queue.forget([gone])
    assert {one.conversation for one in await queue.newest(100)} == {kept}
    assert [one.entry.conversation async for one in queue.dead()] == [kept]
    assert await queue.intents() == {}
    assert not await queue.add(entry(1, gone))


async def test_what_was_forgotten_begins_no_attempt_and_becomes_no_dead_letter(
    store: RedisStore, queue: RedisFlushQueue
) -> None:
    """Its reader holds it still: it hears that it is gone, and nothing of it is left; its count of attempts neither."""
    await queue.add(entry(1))
    await queue.add(entry(2))
    first, second = await queue.read("a", "one", 2)
    assert [await queue.begin("a", first), await queue.begin("a", second)] == [1, 1]
    await queue.forget([first.conversation])
    assert await queue.begin("a", first) == 0
    assert not await queue.bury("a", second, "r", 1)
    assert [one async for one in queue.dead()] == []
    (one,) = (await queue.state()).consumers
    assert (one.waiting, one.pending, one.dead, one.lost) == (0, 0, 0, 0)
    assert await store.ask("EXISTS", "tm:{flush}:a:a") == 0


async def test_what_made_way_while_it_was_held_is_counted_once(store: RedisStore, queue: RedisFlushQueue) -> None:
    """As lost: it is neither delivered nor a dead letter."""
    bounded = RedisFlushQueue(store.ask, Codec(), ttl_seconds=60, bounds=QueueBounds(2, 10**9))
    await bounded.add(entry(1))
    await bounded.add(entry(2))
    first, second = await bounded.read("a", "one", 2)
    await bounded.add(entry(3))
    await bounded.add(entry(4))
    assert await bounded.begin("a", first) == 0
    assert not await bounded.bury("a", second, "r", 1)
    (one,) = (await bounded.state()).consumers
    assert (one.lost, one.dead, one.pending) == (2, 0, 0)


async def test_a_step_that_fails_midway_loses_nothing(
    store: RedisStore, queue: RedisFlushQueue, url: str, admin: redis.Redis
) -> None:
    """A server without memory or rights refuses a script in its middle and takes back nothing.

    Notes, entries and letters stay where they were.
    """
    if "cluster" in url:
        pytest.skip("rights are set on the single server")
    await queue.add(entry(1))
    (given,) = await queue.read("a", "one", 1)
    await queue.intend("", entry(2).key, b"note")
    allow(admin, "-xadd")
    try:
        with pytest.raises(StoreUnavailable):
            await queue.add(entry(2))
        with pytest.raises(StoreUnavailable):
            await queue.bury("a", given, "r", 1)
    finally:
        allow(admin, "+xadd")
    assert list(await queue.intents()) == [entry(2).key]
    assert keys_of(list(await queue.claim("a", "two", 0))) == [1]
    await queue.bury("a", given, "r", 1)
    (letter,) = [one async for one in queue.dead()]
    allow(admin, "-xadd")
    try:
        with pytest.raises(StoreUnavailable):
            await queue.replay(letter.entry.id, dead=True)
    finally:
        allow(admin, "+xadd")
    assert len([one async for one in queue.dead()]) == 1
    assert await queue.add(entry(2))


async def test_a_cipher_seals_notes_bodies_and_the_reasons_of_dead_letters(
    store: RedisStore, queue: RedisFlushQueue
) -> None:
    """A note is opened before a conversation is looked for in it; one that was not sealed counts as empty."""
    del queue  # it was emptied
    sealed = RedisFlushQueue(store.ask, Codec(XorCipher()), ttl_seconds=60, bounds=ROOMY)
    await sealed.intend("", entry(1).key, b"about " + b"c" * 48)
    assert (await store.ask("HGET", "tm:{flush}:o", entry(1).key)).startswith(TAG)
    await sealed.forget(["c" * 48])
    await store.ask("HSET", "tm:{flush}:o", entry(2).key, b"not sealed")
    assert await sealed.intents() == {entry(2).key: b""}
    await sealed.add(entry(3))
    (given,) = await sealed.read("a", "one", 10)
    await sealed.bury("a", given, "it quoted a client", 1)
    ((_, flat),) = await store.ask("XRANGE", "tm:{flush}:d", "-", "+")
    fields = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
    assert fields[b"body"].startswith(TAG)
    assert fields[b"reason"].startswith(TAG)
    (letter,) = [letter async for letter in sealed.dead()]
    assert (letter.reason, letter.entry.body) == ("it quoted a client", entry(3).body)
