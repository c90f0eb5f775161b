"""A whole store moves between an embedded server and a cluster, and is complete although slots move meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.features.upkeep.stored import contents, fill
from tests.support.clusters import Cluster
from tidemark.features.upkeep.examination import StoreExaminer
from tidemark.features.upkeep.exporting import StoreExport
from tidemark.features.upkeep.importing import StoreImport
from tidemark.store import whole_store
from tidemark.store.codec import Codec
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.whole_store import WholeStore

pytestmark = pytest.mark.fleet


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A single server."""
    with EmbeddedValkey(tmp_path / "single") as running:
        yield running


@pytest.fixture(autouse=True)
def emptied(cluster: Cluster) -> None:
    """The cluster without any key."""
    for node in cluster.primaries:
        node.say("FLUSHALL")


async def export(url: str, path: Path) -> None:
    """Write a store to a file."""
    store = WholeStore(url)
    async for _ in StoreExport(store, path, time.time).run():
        pass
    await store.aclose()


async def load(url: str, path: Path) -> StoreImport:
    """Read a file into a store."""
    store = WholeStore(url)
    work = StoreImport(store, path, time.time)
    async for _ in work.run():
        pass
    await store.aclose()
    return work


def lasting(*servers: redis.Redis) -> dict[bytes, Any]:
    """What servers hold for good, but for what each store has of its own."""
    return {
        name: content for name, content in contents(servers).items() if name not in (b"tm:{models}:v", b"tm:schema")
    }


async def test_a_store_moves_to_a_cluster_and_back(cluster: Cluster, embedded: EmbeddedValkey, tmp_path: Path) -> None:
    """The same records everywhere, to the byte."""
    await fill(embedded.url, 30)
    with redis.Redis.from_url(embedded.url) as admin:
        before = lasting(admin)
        await export(embedded.url, tmp_path / "first")
        assert (await load(cluster.url(), tmp_path / "first")).counts.differing == 0
        assert lasting(*[node.admin for node in cluster.primaries]) == before
        assert all(node.say("DBSIZE") > 10 for node in cluster.primaries)
        await export(cluster.url(cluster.primaries[1]), tmp_path / "second")
        admin.flushall()
        assert (await load(embedded.url, tmp_path / "second")).counts.differing == 0
        assert lasting(admin) == before


async def test_slots_that_move_meanwhile_hide_nothing(
    cluster: Cluster, embedded: EmbeddedValkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a server that is yet to be read to one that was read already; half moved at first, then as a whole."""
    monkeypatch.setattr(whole_store, "PAGE", 10)
    await fill(cluster.url(), 60)
    first, *_, last = cluster.primaries
    names = list(last.admin.scan_iter(match="tm:{*:c:*"))[:8]
    slots = sorted({cluster.slot(name.decode()) for name in names})
    before = lasting(*[node.admin for node in cluster.primaries])
    store, moved = WholeStore(cluster.url()), 0
    async for _ in StoreExport(store, tmp_path / "file", time.time).run():
        if moved < len(slots):
            slot, moved = slots[moved], moved + 1
            await asyncio.to_thread(_move, cluster, slot, moved)
    await store.aclose()
    for slot in slots[::2]:
        cluster.move_keys(slot, last, first, 1000)
        cluster.end_move(slot, last, first)
    await load(embedded.url, tmp_path / "file")
    with redis.Redis.from_url(embedded.url) as admin:
        assert lasting(admin) == before
    examined = WholeStore(cluster.url())
    assert [record async for _, records in StoreExaminer(examined, Codec()).examine() for record in records] == []
    await examined.aclose()
    for slot in slots:
        cluster.begin_move(slot, first, last)
        cluster.move_keys(slot, first, last, 1000)
        cluster.end_move(slot, first, last)


def _move(cluster: Cluster, slot: int, number: int) -> None:
    """Move a slot's keys from the last primary to the first: of every other slot two only, and it stays half moved."""
    first, *_, last = cluster.primaries
    cluster.begin_move(slot, last, first)
    cluster.move_keys(slot, last, first, 2 if number % 2 else 1000)
    if number % 2 == 0:
        cluster.end_move(slot, last, first)
