"""Replies of the queue that never arrive: what they held is delivered in its order all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.features.memory_flush.conftest import entry
from tests.features.memory_flush.test_delivery import QUICK, Taker
from tests.support.losing import Losing
from tidemark.core.errors import StoreUnavailable
from tidemark.core.ports import FlushEntry
from tidemark.delivery.courier import PAGE, Courier
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey


async def test_entries_whose_reply_was_lost_are_delivered_before_later_ones(
    queue: RedisFlushQueue, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    """The reading was done, and is repeated: the order within a conversation holds, and nothing waits for minutes."""
    async with Losing(valkey.url, tmp_path).open() as way:
        store = RedisStore(way.url, Codec(), ttl_seconds=86_400, record_timeout_seconds=5)
        lossy, taker = RedisFlushQueue(store.ask, Codec(), ttl_seconds=86_400, bounds=QueueBounds(1000, 10**8)), Taker()
        courier = Courier(taker, lossy, "one", waits=QUICK, emit=lambda _: None, clock=lambda: 0.0)
        for number in range(3):
            await queue.add(entry(number))
        await courier.read()
        await courier.idle()
        for number in range(3, 3 + 2 * PAGE):
            await queue.add(entry(number))
        way.armed = True
        while await courier.read():
            pass
        await courier.idle()
        assert not way.armed
        assert [number for _, number in taker.taken] == list(range(3 + 2 * PAGE))
        (one,) = (await queue.state()).consumers
        assert one.pending == 0
        await store.close()


async def test_entries_that_came_too_late_are_read_once_more(
    queue: RedisFlushQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store gave them and was given up: the next look begins with them, less what was forgotten meanwhile."""
    taker = Taker()
    courier = Courier(taker, queue, "one", waits=QUICK, emit=lambda _: None, clock=lambda: 0.0)
    for number in range(3):
        await queue.add(entry(number, "gone" if number == 1 else "c1"))
    read = queue.read

    async def late(*given: Any) -> list[FlushEntry]:
        await read(*given)
        raise StoreUnavailable("too late")

    with monkeypatch.context() as patched:
        patched.setattr(queue, "read", late)
        with pytest.raises(StoreUnavailable):
            await courier.read()
    await queue.forget({"gone"})
    await queue.add(entry(3))
    while await courier.read():
        pass
    await courier.idle()
    assert taker.taken == [("c1", 0), ("c1", 2), ("c1", 3)]
    (one,) = (await queue.state()).consumers
    assert one.pending == 0
