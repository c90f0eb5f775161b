"""A store is sealed anew while it is in use: what was plain, and what an old key sealed (ADR 0041)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from tests.features.tenants.test_erasure import export
from tests.features.upkeep.stored import fill, open_store
from tests.request.compaction.test_sealed import values
from tests.support.sealing import key_ring
from tidemark.core.errors import StoreUnavailable
from tidemark.features.upkeep.examination import StoreExaminer
from tidemark.features.upkeep.importing import StoreImport
from tidemark.features.upkeep.rotation import Rotated, StoreRotation
from tidemark.store.codec import Codec
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.encryption.cipher import TenantCipher, key_id_of
from tidemark.store.encryption.keyring import MARK, KeyRing
from tidemark.store.whole_store import WholeStore


@pytest.fixture
def anyio_backend() -> str:
    """Keys are read in threads of asyncio."""
    return "asyncio"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store of the test's own."""
    with EmbeddedValkey(tmp_path / "store") as running:
        yield running


@pytest.fixture
async def whole(server: EmbeddedValkey) -> AsyncIterator[WholeStore]:
    """All of it."""
    opened = WholeStore(server.url)
    yield opened
    await opened.aclose()


def rotation(whole: WholeStore, ring: KeyRing) -> StoreRotation:
    """A run of the command."""
    return StoreRotation(whole, Codec(TenantCipher(ring)), ring)


async def rotated(whole: WholeStore, ring: KeyRing, *, renew: bool = False) -> Rotated:
    """What a whole run did."""
    work = rotation(whole, ring)
    async for _ in work.run(renew=renew):
        pass
    return work.progress


async def read_whole(server: EmbeddedValkey, whole: WholeStore, ring: KeyRing, stored: dict[str, list[bytes]]) -> None:
    """Check that everything is read, though nothing plain is accepted but entries of the flush queue."""
    codec = Codec(TenantCipher(ring, required=True))
    store = open_store(server.url, codec)
    try:
        for conversation, raws in stored.items():
            messages = await store.messages(conversation)
            assert [message.raw for message in messages if not message.unreadable] == [
                raw for raw in raws if b'"system"' not in raw
            ]
    finally:
        await store.close()
    examiner = StoreExaminer(whole, codec)
    unreadable = [record async for _, page in examiner.examine() for record in page]
    assert {record.key for record in unreadable} <= {"tm:{flush}:s"}


async def test_what_is_plain_is_sealed_and_read_as_before(
    server: EmbeddedValkey, whole: WholeStore, tmp_path: Path
) -> None:
    """A second run has nothing left to do, and the survey says how much there was."""
    stored = dict(await fill(server.url))
    ring = key_ring(tmp_path / "keys")
    sealed, plain = await rotation(whole, ring).survey(10_000)
    assert (sealed, plain > 30) == (0, True)
    first = await rotated(whole, ring)
    assert (first.sealed, first.unchanged) == (plain, 0)
    await read_whole(server, whole, ring, stored)
    assert (await rotation(whole, ring).survey(10_000)) == (plain, 0)
    again = await rotated(whole, ring)
    assert (again.sealed, again.resealed, again.rewrapped, again.unchanged) == (0, 0, 0, 0)


async def test_a_run_that_was_interrupted_is_gone_on_with(
    server: EmbeddedValkey, whole: WholeStore, tmp_path: Path
) -> None:
    """What was sealed stays so, and its lease is given up."""
    stored = dict(await fill(server.url))
    ring = key_ring(tmp_path / "keys")
    begun = rotation(whole, ring).run()
    await anext(begun)
    await begun.aclose()
    assert (await rotated(whole, ring)).unchanged == 0
    await read_whole(server, whole, ring, stored)


async def test_new_keys_seal_everything_and_an_export_of_before_still_opens(
    server: EmbeddedValkey, whole: WholeStore, tmp_path: Path
) -> None:
    """Also under another master key. A backup, a daily file and a queue have values that nobody seals anew."""
    stored = dict(await fill(server.url, codec=Codec(TenantCipher(key_ring(tmp_path / "keys", b"a")))))
    ring = key_ring(tmp_path / "keys", b"b", b"a")
    before = {scope: ring.source.read(scope) for scope in ring.source.scopes()}
    await export(server.url, tmp_path / "backup.jsonl")
    done = await rotated(whole, ring, renew=True)
    assert (done.rewrapped, done.sealed, done.unchanged) == (len(before), 0, 0)
    assert done.resealed > 30
    only = key_ring(tmp_path / "keys", b"b")
    await read_whole(server, whole, only, stored)
    assert all(ring.source.read(scope) != record for scope, record in before.items())
    with redis.Redis.from_url(server.url) as admin:
        admin.delete("tm:{flush}:s")
        sealed = {key_id_of(value[value.index(MARK) :]) for _, value in values(admin) if MARK in value}
    assert (await rotated(whole, only, renew=True)).unchanged == 0
    with redis.Redis.from_url(server.url) as admin:
        again = {key_id_of(value[value.index(MARK) :]) for _, value in values(admin) if MARK in value}
    assert not sealed & again
    with EmbeddedValkey(tmp_path / "restored") as other:
        restored = WholeStore(other.url)
        async for _ in StoreImport(restored, tmp_path / "backup.jsonl", time.time).run():
            pass
        await read_whole(other, restored, only, stored)
        await restored.aclose()


async def test_a_tenant_whose_key_is_lost_stops_no_other(
    server: EmbeddedValkey, whole: WholeStore, tmp_path: Path
) -> None:
    """Neither the rotation, which says how many values stay, nor the check, whose repair moves none of them."""
    await fill(server.url, codec=Codec(TenantCipher(key_ring(tmp_path / "keys", b"a"))))
    await fill(server.url)
    ring = key_ring(tmp_path / "keys", b"b")
    done = await rotated(whole, ring)
    assert (done.sealed > 10, done.unchanged > 10) == (True, True)
    examiner = StoreExaminer(whole, Codec(TenantCipher(ring)))
    unreadable = [record async for _, page in examiner.examine() for record in page]
    assert len(unreadable) > 10
    assert {
        ("TIDEMARK_ENCRYPTION_KEY" in record.reason, await examiner.move_aside(record)) for record in unreadable
    } == {(True, 0)}


async def test_plain_entries_of_queues_are_told(server: EmbeddedValkey, whole: WholeStore, tmp_path: Path) -> None:
    """An entry of a stream cannot be changed, so nobody may believe that it is sealed."""
    await fill(server.url)
    assert (await rotated(whole, key_ring(tmp_path / "keys"))).queued == 4


async def test_the_second_of_two_operators_is_told(server: EmbeddedValkey, whole: WholeStore, tmp_path: Path) -> None:
    """The first one goes on, and after its end the second may begin."""
    await fill(server.url)
    ring = key_ring(tmp_path / "keys")
    first = rotation(whole, ring).run()
    await anext(first)
    with pytest.raises(StoreUnavailable, match="Another tidemark store rotate"):
        await rotated(whole, ring)
    async for _ in first:
        pass
    assert (await rotated(whole, ring)).unchanged == 0


async def test_lifetimes_stay_and_a_changed_value_is_left_alone(
    server: EmbeddedValkey, whole: WholeStore, tmp_path: Path
) -> None:
    """A request may write the same record at the same instant."""
    await fill(server.url)
    with redis.Redis.from_url(server.url) as admin:
        before = {name: admin.ttl(name) > 0 for name in admin.scan_iter("tm:*") if b"probe" not in name}
        await rotated(whole, key_ring(tmp_path / "keys"))
        after = {name: admin.ttl(name) > 0 for name in before}
        assert after == before
        assert list(values(admin))
    await asyncio.sleep(0)
