"""Live events in the store: batches of all workers in one order, stored only while somebody listens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import pytest
import redis

from tests.store.conftest import admin, alone, anyio_backend, client, cluster_url, server, store, tenant, url
from tests.support.sealing import XorCipher
from tidemark.features.live_events.events import LiveEvent, LiveEventKind
from tidemark.features.live_events.store import MAX_BATCHES, STORED_SECONDS, RedisLiveEvents
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

__all__ = ["admin", "alone", "anyio_backend", "client", "cluster_url", "server", "store", "tenant", "url"]

pytestmark = pytest.mark.anyio


def events(*conversations: str) -> list[LiveEvent]:
    """Each has a new turn."""
    return [LiveEvent("conversation.updated", "owner", {"conversation": name, "tokens": 3}) for name in conversations]


def compaction(step: Literal["started", "finished", "failed"], conversation: str) -> LiveEvent:
    """A step of a compaction."""
    kinds: dict[str, LiveEventKind] = {
        "started": "compaction.started",
        "finished": "compaction.finished",
        "failed": "compaction.failed",
    }
    return LiveEvent(kinds[step], "owner", {"conversation": conversation, "messages": 4})


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


async def test_nothing_is_sealed_while_nobody_listens(alone: RedisStore, admin: redis.Redis) -> None:
    """Each turn has an event, so this would be a part of each request's cost."""
    sealed: list[str] = []

    class Noting(XorCipher):
        """Notes for whom it seals."""

        def seal(self, plain: bytes, owner: str, place: Sequence[str | bytes]) -> bytes:
            sealed.append(owner)
            return super().seal(plain, owner, place)

    feed = RedisLiveEvents(alone.ask, Codec(Noting()))
    admin.delete(f"{keys.EVENTS}:s", f"{keys.EVENTS}:l")
    assert not await feed.publish(events("unheard"))
    assert sealed == []
    before = await feed.newest()
    assert await feed.publish(events("heard"))
    assert [batch for _, batch in await feed.read(before)] == [events("heard")]


@pytest.mark.parametrize("codec", [Codec(), Codec(XorCipher())], ids=["plain", "sealed"])
async def test_a_compaction_is_noted_from_its_start_to_its_end_though_nobody_listens(
    alone: RedisStore, admin: redis.Redis, codec: Codec
) -> None:
    """In two conversations: one ends well, one fails, and a third one still runs."""
    feed = RedisLiveEvents(alone.ask, codec)
    admin.delete(*[f"{keys.EVENTS}:{part}" for part in "slr"])
    await feed.publish([compaction("started", name) for name in ("a", "b", "c")] + events("d"))
    assert sorted(await feed.running(), key=lambda one: str(one.fields)) == [
        compaction("started", name) for name in ("a", "b", "c")
    ]
    await feed.publish([compaction("finished", "a"), compaction("failed", "b"), compaction("finished", "never begun")])
    assert await feed.running() == [compaction("started", "c")]
    assert 0 < int(admin.ttl(f"{keys.EVENTS}:r")) <= STORED_SECONDS
    assert admin.exists(f"{keys.EVENTS}:s") == 0


async def test_a_compaction_that_a_dead_process_left_is_not_shown_for_ever(
    alone: RedisStore, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others keep the hash alive; what cannot be read hides none of them."""
    feed = RedisLiveEvents(alone.ask, Codec())
    admin.delete(f"{keys.EVENTS}:r")
    await feed.publish([compaction("started", "dead")])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + STORED_SECONDS + 1)
    await feed.publish([compaction("started", "new")])
    admin.hset(f"{keys.EVENTS}:r", "other version", b"?")
    assert await feed.running() == [compaction("started", "new")]


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
