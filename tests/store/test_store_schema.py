"""The store's schema: noted once, and a store of a newer one is left alone until it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from proxy.core.errors import SchemaUnknown
from proxy.store import keys
from proxy.store.codec import Codec
from proxy.store.conversations import RedisStore
from proxy.store.embedded.server import EmbeddedValkey
from proxy.store.schema import SCHEMA
from tests.store.turns import Client, assistant, dialogue


async def test_the_first_start_notes_the_schema_and_the_next_ones_leave_it(store: RedisStore) -> None:
    """A store from before there was a number has schema 1, too, and gets it without any other change."""
    await store.ask("DEL", keys.SCHEMA)
    await store.check_schema()
    assert int(await store.ask("GET", keys.SCHEMA)) == SCHEMA
    assert await store.ask("PTTL", keys.SCHEMA) == -1
    await store.check_schema()
    assert store.is_well


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
