"""The store's schema: noted once, and a store of a newer one is left alone until it is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import redis
from msgspec import structs
from starlette.testclient import TestClient

from tests.request.conftest import litellm
from tests.store.turns import Client, assistant, dialogue, user
from tests.support.waiting import wait_until
from tidemark.app.application import create_app
from tidemark.config import Address, load
from tidemark.config.sections import Compression
from tidemark.core.errors import SchemaUnknown
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.schema import SCHEMA, CompressionSwitch

__all__ = ["litellm"]

LOOKS = 12
"""Reads of the schema: four looks of three connections."""


async def test_a_new_store_has_the_newest_schema_and_later_starts_leave_it(short_folder: Path) -> None:
    """Nobody of an older version has written there."""
    with EmbeddedValkey(short_folder) as server:
        store = RedisStore(server.url, Codec(), ttl_seconds=None)
        for _ in range(2):
            assert await store.check_schema() == SCHEMA
            assert await store.ask("PTTL", keys.SCHEMA) == -1
        await store.ask("SET", keys.SCHEMA, "1")
        assert await store.check_schema() == 1
        assert store.is_well
        await store.close()


async def test_a_store_from_before_there_was_a_number_has_the_first(short_folder: Path) -> None:
    """It gets the number without any other change."""
    with EmbeddedValkey(short_folder) as server:
        store = RedisStore(server.url, Codec(), ttl_seconds=None)
        await store.ask("ZADD", keys.everybodys_index(), 1, "one")
        assert await store.check_schema() == 1
        assert await store.ask("GET", keys.SCHEMA) == b"1"
        await store.close()


async def test_messages_are_compressed_one_look_after_the_schema_says_so() -> None:
    """So every older worker has looked meanwhile, and leaves the store alone before it could meet one."""
    switched: list[bool] = []
    raised: list[int] = []

    async def raise_schema() -> None:
        raised.append(len(switched))

    switch = CompressionSwitch(switched.append, raise_schema)
    for schema in (0, 1, SCHEMA, SCHEMA, 1, SCHEMA, SCHEMA):
        await switch.note(schema)
    assert switched == [False, False, False, True, False, False, True]
    assert raised == [2, 5]


@pytest.mark.parametrize(
    ("mode", "before", "after"),
    [("auto", None, "zstd"), ("auto", "1", "none"), ("zstd", "1", "zstd"), ("none", None, "none")],
)
def test_a_server_compresses_where_its_store_and_configuration_say_so(
    short_folder: Path, mode: Compression, before: str | None, after: str
) -> None:
    """A shared store of an older version is left readable for it, until the configuration says that none is there."""
    codec = Codec(compress_messages=False)
    settings = load(None, {"HOME": str(short_folder.parent)})
    with EmbeddedValkey(short_folder) as server, redis.Redis.from_url(server.url) as admin:
        if before is not None:
            admin.set(keys.SCHEMA, before)
        section = structs.replace(settings.store, compression=mode, url=Address(server.url))
        app = create_app(
            replace(settings, store=section), store_url=server.url, secret=b"s" * 40, warn=lambda _: None, codec=codec
        )
        message = user("a long message " * 200)
        with TestClient(app):
            wait_until(lambda: (len(codec.pack_message(message, 1, 1.0)) < 1000) == (after == "zstd"), 30)
            if after == "none":
                wait_until(lambda: admin.info("commandstats")["cmdstat_get"]["calls"] > LOOKS, 30)
                assert len(codec.pack_message(message, 1, 1.0)) > 1000
        assert admin.get(keys.SCHEMA) == (b"1" if (before, after) == ("1", "none") else b"2")


@pytest.mark.parametrize("stored", [str(SCHEMA + 1), "of another kind"])
async def test_a_store_of_a_newer_schema_is_neither_read_nor_written(
    store: RedisStore, url: str, tenant: str, stored: str
) -> None:
    """What this program does not understand it would damage; the error names the mend, and the old schema ends it."""
    client = Client(store, tenant)
    conversation = await client.send(dialogue(3), assistant("reply"))
    try:
        await store.ask("SET", keys.SCHEMA, stored)
        with pytest.raises(SchemaUnknown, match=r"newer version .* Run the newer version"):
            await store.check_schema()
        assert not store.is_well
        for probe in (False, True):
            with pytest.raises(SchemaUnknown):
                await store.ask("GET", keys.SCHEMA, probe=probe)
        with pytest.raises(SchemaUnknown):
            await client.recall(dialogue(3))
        with pytest.raises(SchemaUnknown):
            await store.ping()
    finally:
        other = RedisStore(url, Codec(), ttl_seconds=None)
        await other.ask("SET", keys.SCHEMA, str(SCHEMA))
        await other.close()
    await store.check_schema()
    assert (await client.recall(dialogue(3))).conversation == conversation
    assert store.is_well


async def test_a_store_that_is_away_has_no_schema_that_could_be_refused(tmp_path: Path) -> None:
    """Nothing is known of it: the outage is reported by the calls themselves."""
    store = RedisStore(f"unix://{tmp_path}/nobody.sock", Codec(), ttl_seconds=None)
    await store.check_schema()
    assert store.is_well
    await store.close()


async def test_a_store_that_takes_no_writes_is_read_without_a_number(short_folder: Path) -> None:
    """A replica that was never written by a version with schemas."""
    with EmbeddedValkey(short_folder, options=["--replicaof", "127.0.0.1", "1"]) as server:
        store = RedisStore(server.url, Codec(), ttl_seconds=None)
        await store.check_schema()
        await store.close()
        with redis.Redis.from_url(server.url) as admin:
            assert admin.get(keys.SCHEMA) is None
