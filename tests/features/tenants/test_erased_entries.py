"""What tenants share in the store loses the bytes of one of them, and the others notice nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from tests.features.upkeep.stored import open_store
from tidemark.core.grants import Quota
from tidemark.core.ports import Bound, FlushEntry
from tidemark.core.traffic import MINUTES, TrafficCell, TrafficFigures
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.features.tenants.trace_eraser import TraceEraser
from tidemark.features.tenants.traces import Traces, find_owner
from tidemark.features.traffic.store import Part, RedisTraffic
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.quotas import RedisQuotas
from tidemark.store.whole_store import WholeStore

MINE, THEIRS = "ab" * 16, "cd" * 16
BOUNDS = QueueBounds(1000, 10**9)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store of the test's own."""
    with EmbeddedValkey(tmp_path / "store") as running:
        yield running


@pytest.fixture
async def store(server: EmbeddedValkey) -> AsyncIterator[RedisStore]:
    """The store as a worker has it."""
    opened = open_store(server.url)
    yield opened
    await opened.close()


def entry(number: int) -> FlushEntry:
    """An entry of one of both in turn, small enough that several share a node of the stream."""
    owner = THEIRS if number % 2 else MINE
    return FlushEntry(f"{number:032x}", owner, owner + "1" * 16, b"text", float(number), owner=owner)


async def erased(server: EmbeddedValkey) -> int:
    """How many entries and keys an erasure deletes."""
    whole = WholeStore(server.url)
    try:
        return await TraceEraser(whole, Traces(MINE, tenants={MINE})).erase()
    finally:
        await whole.aclose()


async def test_no_byte_of_an_erased_entry_stays_and_the_queue_goes_on(
    server: EmbeddedValkey, store: RedisStore
) -> None:
    """What was pending of others is pending, with its attempts; what follows follows; a new entry gets a newer id."""
    queue = RedisFlushQueue(store.ask, Codec(), ttl_seconds=60, bounds=BOUNDS)
    assert await queue.read("slow", "reader", 1) == []
    for number in range(12):
        await queue.add(entry(number))
    first = await queue.read("slow", "reader", 4)
    await queue.done("slow", first[1])
    await queue.read("fast", "reader", 8)
    await queue.read("fast", "reader", 8)
    for number in (0, 1):
        await queue.bury("slow", first[number + 2], "a reason", 3)
    newest = (await queue.newest(1))[0].id
    with redis.Redis.from_url(server.url) as admin:
        admin.config_set("rdbcompression", "no")
        assert entry(10).key.encode() in admin.dump("tm:{flush}:s")
        assert await erased(server) == 7  # of the twelve six, one of them a dead letter
        written = b"".join(admin.dump(name) for name in ("tm:{flush}:s", "tm:{flush}:d"))
        assert [number for number in range(0, 12, 2) if entry(number).key.encode() in written] == []
        assert admin.keys("tm:{flush}:*:fresh") == []
    state = await queue.state()
    assert {one.name: one.pending for one in state.consumers} == {"fast": 6, "slow": 0}
    waiting = {one.name: one.waiting for one in state.consumers}
    assert waiting in ({"fast": 0, "slow": 4}, {"fast": 0, "slow": -1})  # Redis 6 cannot tell how many follow
    assert [one.entry.key async for one in queue.dead()] == [entry(3).key]
    following = [one.key for one in await queue.read("slow", "reader", 8, first[-1].id)]
    assert following == [entry(number).key for number in (5, 7, 9, 11)]
    assert [one.key for one in await queue.claim("fast", "another", 0)] == [entry(n).key for n in range(1, 12, 2)]
    await queue.add(entry(13))
    assert (await queue.newest(1))[0].id > newest


async def test_what_a_tenant_has_used_of_its_quotas_is_erased(server: EmbeddedValkey, store: RedisStore) -> None:
    """The names of these keys have its fingerprint."""
    quotas = RedisQuotas(store.ask)
    for owner in (MINE, THEIRS):
        await quotas.take(owner, [Bound("", Quota(10, 100, 2))], f"lease {time.time()}")
    with redis.Redis.from_url(server.url) as admin:
        assert len(admin.keys(f"tm:{{limits:{MINE}}}:*")) > 0
        others = sorted(admin.keys(f"tm:{{limits:{THEIRS}}}:*"))
        await erased(server)
        assert admin.keys(f"*{MINE}*") == []
        assert sorted(admin.keys("tm:{limits:*")) == others


async def test_figures_of_a_tenant_are_erased_and_those_of_others_and_of_all_stay(
    server: EmbeddedValkey, store: RedisStore
) -> None:
    """What a worker had not written yet is nobody's then; a tenant of whom there are only figures is found."""
    traffic, minute = RedisTraffic(store.ask), int(time.time()) // 60
    cells = {TrafficCell(minute, "m", owner): TrafficFigures(requests=3) for owner in (MINE, THEIRS)}
    await traffic.add("worker", 1, cells)
    whole = WholeStore(server.url)
    try:
        assert await find_owner(whole, None, MINE[:8]) == MINE
        eraser = TraceEraser(whole, Traces(MINE, tenants={MINE}))
        await eraser.mark()
        assert await eraser.erase() == 4  # three periods, and its place in the list
        await traffic.add("worker", 2, cells)
        assert await eraser.erase() == 0
    finally:
        await whole.aclose()
    with redis.Redis.from_url(server.url) as admin:
        assert admin.keys(f"*{MINE}*") == []
    assert await traffic.tenants() == [THEIRS, "other"]
    sums = {}
    for part in (None, Part("m", "m"), Part("t", THEIRS), Part("t", MINE), Part("t", "other")):
        answer = await traffic.read(MINUTES, minute, minute, part)
        sums[part.name if part else ""] = sum(one.requests for one in answer.periods.values())
    assert sums == {"": 12, "m": 12, THEIRS: 6, MINE: 0, "other": 3}
