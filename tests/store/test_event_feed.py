"""Live events in the store: batches of all workers in one order, stored only while somebody listens."""

from __future__ import annotations

import pytest
import redis

from proxy.core.live_events import LiveEvent
from proxy.store import keys
from proxy.store.codec import Codec
from proxy.store.conversations import RedisStore
from proxy.store.live_events import MAX_BATCHES, RedisLiveEvents
from tests.support.sealing import XorCipher

pytestmark = pytest.mark.anyio


def events(*conversations: str) -> list[LiveEvent]:
    """Each has a new turn."""
    return [LiveEvent("conversation.updated", "owner", {"conversation": name, "tokens": 3}) for name in conversations]


@pytest.mark.parametrize("codec", [Codec(), Codec(XorCipher())], ids=["plain", "sealed"])
async def test_batches_come_as_they_were_published(store: RedisStore, codec: Codec) -> None:
    """In order, after an id or from it on."""
    feed = RedisLiveEvents(store.ask, codec)
    before = await feed.newest()
    await feed.publish(events("one", "two"))
    await feed.publish(events("three"))
    read = await feed.read(before)
    assert [batch for _, batch in read] == [events("one", "two"), events("three")]
    assert await feed.newest() == read[-1][0]
    assert await feed.read(read[-1][0]) == []
    assert await feed.read(read[-1][0], with_it=True) == [read[-1]]


async def test_nothing_is_stored_while_nobody_listens(alone: RedisStore, admin: redis.Redis) -> None:
    """The first listener's question begins it, and it ends by itself."""
    feed = RedisLiveEvents(alone.ask, Codec())
    admin.delete(f"{keys.EVENTS}:s", f"{keys.EVENTS}:l")
    await feed.publish(events("unheard"))
    assert admin.exists(f"{keys.EVENTS}:s") == 0
    await feed.newest()
    await feed.publish(events("heard"))
    assert admin.xlen(f"{keys.EVENTS}:s") == 1
    for part in "sl":
        assert int(admin.ttl(f"{keys.EVENTS}:{part}")) > 0


async def test_only_the_newest_batches_are_stored(alone: RedisStore, admin: redis.Redis) -> None:
    """The bound is rough: the server trims by blocks."""
    feed = RedisLiveEvents(alone.ask, Codec())
    await feed.newest()
    for number in range(MAX_BATCHES + 300):
        await feed.publish(events(str(number)))
    assert int(admin.xlen(f"{keys.EVENTS}:s")) <= MAX_BATCHES + 150


async def test_a_batch_that_cannot_be_read_hides_no_other(alone: RedisStore) -> None:
    """Another version's, or of another cipher."""
    feed = RedisLiveEvents(alone.ask, Codec())
    before = await feed.newest()
    await RedisLiveEvents(alone.ask, Codec(XorCipher())).publish(events("sealed"))
    await feed.publish(events("plain"))
    assert [batch for _, batch in await feed.read(before)] == [[], events("plain")]
