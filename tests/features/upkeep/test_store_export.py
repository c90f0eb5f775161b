"""A store moves as a file: everything with its lifetime, while it is used, and an interrupted run goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from tests.features.upkeep.stored import BOUNDS, contents, fill, open_store
from tests.store.conftest import is_older
from tests.store.turns import Client, assistant, dialogue, user
from tests.support.sealing import XorCipher
from tidemark.codings.frames import FrameWriter
from tidemark.core.errors import StoreError
from tidemark.core.ports import FlushEntry
from tidemark.delivery.queue import RedisFlushQueue
from tidemark.features.upkeep import exporting
from tidemark.features.upkeep.examination import StoreExaminer
from tidemark.features.upkeep.export_lines import (
    FORMAT,
    Checkpoint,
    Checksum,
    End,
    ExportedKey,
    Header,
    Record,
    write_line,
)
from tidemark.features.upkeep.exporting import StoreExport
from tidemark.features.upkeep.importing import StoreImport
from tidemark.store import keys, whole_store
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.schema import SCHEMA
from tidemark.store.whole_store import ScanState, WholeStore


@pytest.fixture(scope="module")
def valkeys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedValkey, EmbeddedValkey]]:
    """Two servers of this file's own."""
    folder = tmp_path_factory.mktemp("moved")
    with EmbeddedValkey(folder / "from") as source, EmbeddedValkey(folder / "to") as target:
        yield source, target


def exported(path: Path, key: str) -> None:
    """Write a whole file of one record with one key."""
    checksum = Checksum()
    header = Header(FORMAT, SCHEMA, "1", 0.0, "an epoch")
    record = Record([ExportedKey(key, "string", [b"1"])])
    with path.open("wb") as file:
        writer = FrameWriter(file)
        for line in (header, record):
            checksum.add(write_line(line))
            writer.add(write_line(line))
            if line is header:
                writer.add(write_line(Checkpoint(0, 0, checksum.end_frame(), ScanState())))
                writer.end()
        writer.add(write_line(End(1, 1, checksum.end_frame())))
        writer.end()


@dataclass
class Move:
    """A store that is exported, the store into which the file is imported, and what is behind both."""

    source: WholeStore
    target: WholeStore
    urls: tuple[str, str]
    admins: tuple[redis.Redis, redis.Redis]
    path: Path

    async def export(self) -> StoreExport:
        """Write the file to its end."""
        work = StoreExport(self.source, self.path, time.time)
        async for _ in work.run():
            pass
        return work

    async def load(self, *, replace: bool = False) -> StoreImport:
        """Read the file to its end."""
        work = StoreImport(self.target, self.path, time.time, replace=replace)
        async for _ in work.run():
            pass
        return work

    def lasting(self) -> tuple[dict[bytes, object], dict[bytes, object]]:
        """What both stores hold for good, but for the version of the registry and the schema."""
        here, there = (contents([admin]) for admin in self.admins)
        for content in (here, there):
            content.pop(b"tm:{models}:v", None)
            content.pop(b"tm:schema", None)
        return here, there


@pytest.fixture
async def move(
    valkeys: tuple[EmbeddedValkey, EmbeddedValkey], anyio_backend: str, tmp_path: Path
) -> AsyncIterator[Move]:
    """Both stores, empty."""
    urls = (valkeys[0].url, valkeys[1].url)
    source, target = map(WholeStore, urls)
    with redis.Redis.from_url(urls[0]) as first, redis.Redis.from_url(urls[1]) as second:
        first.flushall()
        second.flushall()
        yield Move(source, target, urls, (first, second), tmp_path / "file")
    await source.aclose()
    await target.aclose()


@pytest.fixture
async def stores(move: Move) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    """What requests use of both."""
    first, second = map(open_store, move.urls)
    yield first, second
    await first.close()
    await second.close()


@pytest.mark.parametrize("codec", [Codec(), Codec(XorCipher())], ids=["plain", "sealed"])
async def test_every_kind_of_record_moves_with_its_lifetime(move: Move, codec: Codec) -> None:
    """The bytes stay as they are, sealed or not; requests of the same tenants go on in the new store."""
    stored = await fill(move.urls[0], codec=codec)
    work = await move.export()
    assert work.end is not None
    counts = (await move.load()).counts
    assert counts.records == work.end.records
    assert counts.differing == counts.expired == 0
    here, there = move.lasting()
    assert there == here
    for name in move.admins[0].scan_iter(match="tm:*"):
        assert abs(move.admins[0].pttl(name) - move.admins[1].pttl(name)) < 5000 or name in (
            b"tm:{models}:v",
            b"tm:schema",
        ), name
    store = open_store(move.urls[1], codec)
    for conversation, messages in stored.items():
        assert [message.raw for message in await store.messages(conversation)] == messages
    await store.close()
    assert (await move.load()).counts.unchanged == work.end.records


async def test_the_flush_queue_moves_with_what_its_consumers_have_not_taken(
    move: Move, stores: tuple[RedisStore, RedisStore]
) -> None:
    """Nothing is delivered twice, and what was delivered and not acknowledged is delivered again."""
    first, second = stores
    queue = RedisFlushQueue(first.ask, Codec(), ttl_seconds=3600, bounds=BOUNDS)
    for number in range(12):
        await queue.add(FlushEntry(f"{number:032x}", "t", "c", b"%d" % number, at=float(number)))
    taken = await queue.read("daily", "reader", 4)
    await queue.done("daily", taken[0])
    await move.export()
    await move.load()
    moved = RedisFlushQueue(second.ask, Codec(), ttl_seconds=3600, bounds=BOUNDS)
    (state,) = (await moved.state()).consumers
    waiting = -1 if is_older(move.urls[1], (7,)) else 8
    assert (state.pending, state.waiting, state.delivered) == (3, waiting, 1)
    assert {entry.id for entry in await moved.claim("daily", "other", 0)} == {entry.id for entry in taken[1:]}


async def test_what_is_newer_stays_unless_it_is_to_be_replaced(
    move: Move, stores: tuple[RedisStore, RedisStore]
) -> None:
    """A conversation that went on in the target is left; one that went on in the file comes."""
    first, second = stores
    ours, theirs = Client(first, "ab"), Client(second, "ab")
    grown = aged = ""
    for client in (ours, theirs):
        grown = await client.send(dialogue(1, "grown"), assistant("one"))
        aged = await client.send(dialogue(1, "aged"), assistant("one"))
    longer = [*dialogue(1, "grown"), assistant("one"), user("two"), assistant("three")]
    await theirs.send(longer[:-1], longer[-1])
    other = [*dialogue(1, "aged"), assistant("one"), user("two"), assistant("three")]
    await ours.send(other[:-1], other[-1])
    for store in stores:  # a background write of one of them in between would be a second difference
        await store.usage.settle()
    await move.export()
    work = await move.load()
    assert work.counts.differing == 1
    assert [name.endswith(grown[32:]) for name in work.differing_names] == [True]
    assert (len(await theirs.read(grown)), len(await theirs.read(aged))) == (4, 4)
    replaced = await move.load(replace=True)
    assert replaced.counts.differing == 0
    assert (len(await theirs.read(grown)), len(await theirs.read(aged))) == (2, 4)


async def test_a_forgotten_conversation_does_not_come_back(move: Move, stores: tuple[RedisStore, RedisStore]) -> None:
    """Somebody deleted it in the target while the file was on its way."""
    first, second = stores
    conversation = ""
    for store in (first, second):
        conversation = await Client(store, "ab").send(dialogue(1), assistant("one"))
    await second.forget(conversation, "", "", 1.0)
    await move.export()
    await move.load()
    assert await second.conversation(conversation) is None


async def test_an_interrupted_export_goes_on_where_it_was(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the last run left of its last piece; and a part of another store is begun anew."""
    monkeypatch.setattr(exporting, "FRAME_BYTES", 1)
    monkeypatch.setattr(whole_store, "PAGE", 50)
    for _ in range(6):
        await fill(move.urls[0])
    path = move.path
    work = StoreExport(move.source, path, time.time)
    async for _ in limited(work.run(), 2):
        pass
    with path.open("ab") as file:
        file.write(b"\x28\xb5\x2f\xfd cut")
    again = await move.export()
    assert again.resumed_records > 0
    assert again.end is not None
    assert again.resumed_records < again.end.records
    await move.load()
    here, there = move.lasting()
    assert there.keys() == here.keys()
    move.admins[0].set("tm:{models}:v", "another:store")
    assert (await move.export()).resumed_records == 0


async def limited(pages: AsyncIterator[int], most: int) -> AsyncIterator[int]:
    """The first pages; the rest is given up, as at Ctrl-C."""
    for _ in range(most):
        yield await anext(pages)
    await pages.aclose()  # type: ignore[attr-defined]  # an async generator has it


@pytest.mark.parametrize("damage", ["cut", "flipped", "appended", "empty", "other"])
async def test_a_broken_file_says_where_and_a_whole_one_goes_on_there(
    move: Move, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Nothing of a broken piece is stored, and everything before it is."""
    monkeypatch.setattr(exporting, "FRAME_BYTES", 1)
    monkeypatch.setattr(whole_store, "PAGE", 50)
    for _ in range(6):
        await fill(move.urls[0])
    path = move.path
    await move.export()
    whole = path.read_bytes()
    middle = 2 * len(whole) // 3
    path.write_bytes(
        {
            "cut": whole[:middle],
            "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "appended": whole + whole,
            "empty": b"",
            "other": b'{"role": "user"}\n',
        }[damage]
    )
    work = StoreImport(move.target, path, time.time)
    with pytest.raises(StoreError, match=r"at byte [\d,]+|is empty") as refused:
        async for _ in work.run():
            pass
    if damage in ("cut", "flipped"):
        assert f"{work.counts.records:,} records before it" in str(refused.value)
        assert work.counts.records > 0
    path.write_bytes(whole)
    again = await move.load()
    assert again.resumed_records == work.counts.records
    here, there = move.lasting()
    assert there.keys() == here.keys()
    assert not move.admins[1].keys(f"{keys.IMPORT}*")


async def test_an_export_under_writes_has_every_conversation_whole(
    move: Move, stores: tuple[RedisStore, RedisStore]
) -> None:
    """Each as it was at one instant: what was acknowledged before is there, and no message lacks its hash."""
    store, moved = stores
    before: dict[str, int] = {}
    clients = [Client(store, f"{number:02x}") for number in range(8)]

    async def talk(client: Client, turns: range) -> None:
        for turn in turns:
            words = f"of {client.tenant}"
            before[await client.send(dialogue(2 * turn + 1, words), dialogue(2 * turn + 2, words)[-1])] = 2 * turn + 2

    await asyncio.gather(*[talk(client, range(10)) for client in clients])
    acknowledged = dict(before)
    writing = asyncio.gather(*[talk(client, range(10, 60)) for client in clients])
    await asyncio.sleep(0)
    await move.export()
    await writing
    await move.load()
    for conversation, count in acknowledged.items():
        assert len(await moved.messages(conversation)) >= count
    examiner = StoreExaminer(move.target, Codec())
    assert [record async for _, records in examiner.examine() for record in records] == []


async def test_an_import_counts_what_has_expired_meanwhile(move: Move) -> None:
    """A lifetime is a point in time; a file does not prolong it."""
    await fill(move.urls[0])
    await move.export()
    late = StoreImport(move.target, move.path, lambda: time.time() + 8 * 86_400)
    async for _ in late.run():
        pass
    assert late.counts.expired > 10
    assert late.counts.replaced == late.counts.differing == 0


async def test_a_file_writes_no_keys_of_other_programs(move: Move) -> None:
    """A store may be shared. Nothing of the piece with such a key is stored."""
    exported(move.path, "tm:i:all")
    await move.load()
    exported(move.path, "other-app:session:1")
    with pytest.raises(StoreError, match="other-app:session:1, which is none of Tidemark's"):
        await move.load()
    assert move.admins[1].get("other-app:session:1") is None
