"""``tidemark store check`` names every record that cannot be read, and moves it aside with its lifetime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from tests.features.upkeep.stored import fill, open_store
from tests.store.turns import Client, assistant, dialogue, user
from tests.support.sealing import XorCipher
from tidemark.core.errors import SchemaUnknown
from tidemark.features.upkeep.examination import StoreExaminer, Unreadable
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.places import FAMILY, place_of
from tidemark.store.whole_store import WholeStore


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """A server of this file's own."""
    with EmbeddedValkey(tmp_path_factory.mktemp("checked")) as running:
        yield running


@pytest.fixture
def server(valkey: EmbeddedValkey) -> EmbeddedValkey:
    """The server, empty."""
    with redis.Redis.from_url(valkey.url) as admin:
        admin.flushall()
    return valkey


@pytest.fixture
async def whole(server: EmbeddedValkey, anyio_backend: str) -> AsyncIterator[WholeStore]:
    """The whole store."""
    opened = WholeStore(server.url)
    yield opened
    await opened.aclose()


async def unreadable(whole: WholeStore, codec: Codec | None = None, *, repair: bool = False) -> list[Unreadable]:
    """What cannot be read; moved aside where that is wanted."""
    examiner = StoreExaminer(whole, codec or Codec())
    found = [record async for _, records in examiner.examine() for record in records]
    if repair:
        for record in found:
            assert await examiner.move_aside(record), record
    assert examiner.progress.unknown == []
    return found


@pytest.mark.parametrize("codec", [Codec(), Codec(XorCipher())], ids=["plain", "sealed"])
async def test_a_store_of_every_kind_of_record_is_readable(
    whole: WholeStore, server: EmbeddedValkey, codec: Codec
) -> None:
    """Each kind of key has a rule, and what the adapters write passes it."""
    await fill(server.url, codec=codec)
    assert await unreadable(whole, codec) == []


async def test_with_another_cipher_nothing_sealed_is_readable(whole: WholeStore, server: EmbeddedValkey) -> None:
    """As after the loss of a key; what no cipher seals is readable all the same."""
    await fill(server.url, codec=Codec(XorCipher()))
    places = [place_of(record.name) for record in await unreadable(whole)]
    kinds = {place.kind for place in places if place and place.area == FAMILY}
    assert {"m", "t", "s", "w", "o"} <= kinds
    assert not kinds & {"h", "n", "r", "q"}


async def test_a_broken_message_moves_aside_and_its_place_stays(whole: WholeStore, server: EmbeddedValkey) -> None:
    """Readers see a gap there, as before; the copy has its bytes and its lifetime, and a second check finds nothing."""
    store = open_store(server.url)
    client = Client(store, "ab")
    conversation = await client.send(dialogue(3), assistant("reply"))
    at = keys.message_list(conversation)
    with redis.Redis.from_url(server.url) as admin:
        admin.lset(at, 1, b"\x07of another version")
        (record,) = await unreadable(whole, repair=True)
        assert (record.key, record.position) == (at, "1")
        assert "version 07" in record.reason
        aside = at.replace("tm:", "tm:aside:", 1)
        assert admin.hgetall(aside) == {b"1": b"\x07of another version"}
        assert abs(admin.ttl(aside) - admin.ttl(at)) <= 1
    assert await unreadable(whole) == []
    assert [message.unreadable != "" for message in await store.messages(conversation)] == [False, True, False, False]
    assert (await client.recall([*dialogue(3), assistant("reply")])).conversation == conversation
    await store.close()


async def test_every_broken_record_is_named_and_moved_aside(whole: WholeStore, server: EmbeddedValkey) -> None:
    """Of each kind of key, with what was stored; all that is whole stays as it was."""
    await fill(server.url)
    with redis.Redis.from_url(server.url) as admin:
        names = {name.split(b":")[2]: name for name in admin.scan_iter(match="tm:{*") if name.count(b":") > 2}
        admin.hset(names[b"y"], "digest", "fine, since nothing is sealed")
        admin.set(names[b"s"], "no summary", keepttl=True)
        admin.hset(names[b"o"], "resp_9", b"\x09")
        admin.rpush(names[b"r"], "short")
        admin.rpush(names[b"t"], "t" * 16 + "\x05")
        admin.hset(names[b"c"], "turns", "many")
        admin.delete(names[b"w"])
        admin.rpush(names[b"w"], "a list")
        entry = admin.xadd("tm:{flush}:s", {"key": "k", "body": "not packed", "at": "0"})
        admin.hset("tm:{models}:o", "openai:x", "[]")
        found = await unreadable(whole, repair=True)
        assert {record.name for record in found} == {
            *(names[kind] for kind in (b"s", b"o", b"r", b"t", b"c", b"w")),
            b"tm:{flush}:s",
            b"tm:{models}:o",
        }
        assert admin.get(names[b"s"].replace(b"tm:", b"tm:aside:", 1)) == b"no summary"
        assert admin.hget("tm:aside:{flush}:s", entry + b" body") == b"not packed"
        assert not admin.exists(names[b"w"])
        assert not admin.hexists("tm:{models}:o", "openai:x")
    assert await unreadable(whole) == []


async def test_a_conversation_whose_parts_do_not_fit_moves_aside_as_a_whole(
    whole: WholeStore, server: EmbeddedValkey
) -> None:
    """No request can use it; after that it can begin anew."""
    store = open_store(server.url)
    client = Client(store, "ab")
    conversation = await client.send(dialogue(3), assistant("reply"))
    with redis.Redis.from_url(server.url) as admin:
        admin.lpop(keys.message_list(conversation))
        (record,) = await unreadable(whole, repair=True)
        assert record.reason == "3 messages have 4 chain hashes"
        assert admin.llen(keys.message_list(conversation).replace("tm:", "tm:aside:", 1)) == 3
    assert await unreadable(whole) == []
    assert await client.send([*dialogue(3), assistant("reply"), user("go on")], None)
    assert await unreadable(whole) == []
    await store.close()


async def test_a_record_that_was_mended_meanwhile_stays(whole: WholeStore, server: EmbeddedValkey) -> None:
    """What is moved is what was examined, not what a request has written since."""
    store = open_store(server.url)
    conversation = await Client(store, "ab").send(dialogue(1), assistant("reply"))
    with redis.Redis.from_url(server.url) as admin:
        whole_entry = admin.lindex(keys.message_list(conversation), 0)
        admin.lset(keys.message_list(conversation), 0, b"broken")
        (record,) = await unreadable(whole)
        admin.lset(keys.message_list(conversation), 0, whole_entry)
        assert await StoreExaminer(whole, Codec()).move_aside(record) == 0
        assert not admin.keys("tm:aside:*")
    await store.close()


async def test_keys_of_a_newer_version_are_named_and_left(whole: WholeStore, server: EmbeddedValkey) -> None:
    """A further kind of key is no fault; a repair must not take it away."""
    with redis.Redis.from_url(server.url) as admin:
        admin.set("tm:{" + "a" * 32 + "}:zz:1", "new")
        admin.set("tm:unheard:1", "new")
        admin.set("another program's", "key")
    examiner = StoreExaminer(whole, Codec())
    assert [record async for _, records in examiner.examine() for record in records] == []
    assert sorted(examiner.progress.unknown) == ["tm:unheard:1", "tm:{" + "a" * 32 + "}:zz:1"]


async def test_a_store_of_a_newer_schema_is_not_examined(whole: WholeStore, server: EmbeddedValkey) -> None:
    """A repair would move aside what the newer version can read."""
    with redis.Redis.from_url(server.url) as admin:
        admin.set(keys.SCHEMA, 99)
    with pytest.raises(SchemaUnknown):
        await whole.check_schema()


async def test_forgetting_a_conversation_deletes_what_was_moved_aside_of_it(
    whole: WholeStore, server: EmbeddedValkey
) -> None:
    """A person's words must not outlive their deletion."""
    store = open_store(server.url)
    conversation = await Client(store, "ab").send(dialogue(1), assistant("reply"))
    with redis.Redis.from_url(server.url) as admin:
        admin.lset(keys.message_list(conversation), 0, b"broken")
        await unreadable(whole, repair=True)
        assert admin.keys("tm:aside:*")
        assert await store.forget(conversation, "", "", 1.0)
        assert not admin.keys("tm:aside:*")
    await store.close()
