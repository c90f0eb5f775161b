"""A primary that Sentinels watch: found through any of them, and its successor after a failover without a restart."""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.conftest import open_store
from tests.store.turns import Client, assistant, dialogue, raws
from tests.support.clusters import WAIT_SECONDS, Watched, until
from tests.support.rights import documented_rights, sentinel_rights
from tidemark.config import load
from tidemark.core.errors import ConfigError, StoreUnavailable
from tidemark.doctor.findings import Finding
from tidemark.doctor.stores import check_store
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

pytestmark = pytest.mark.fleet
CLIENTS = pytest.mark.parametrize("library", [False, True], ids=["own", "library"])
SAID = [*dialogue(3), assistant("reply")]


@pytest.fixture
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A primary, a replica and three Sentinels, whose users have the documented rights and no others."""
    running = Watched(tmp_path_factory.mktemp("watched"))
    running.admit(documented_rights("sentinel"), sentinel_rights())
    yield running
    refused = running.refusals()
    running.end()
    assert refused == []


async def stored(client: Client) -> str:
    """Store a turn as soon as that is possible."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                return await client.send(dialogue(3), assistant("reply"))
            except StoreUnavailable:
                await asyncio.sleep(0.05)


@CLIENTS
async def test_a_failover_is_followed_without_a_restart(watched: Watched, anyio_backend: str, *, library: bool) -> None:
    """The primary dies; its replica is used as soon as it is the primary, and what it had is known."""
    store = open_store(watched.url(), library=library)
    client = Client(store, uuid.uuid4().hex)
    conversation = await client.send(dialogue(3), assistant("reply"))
    dead = watched.primary()
    until(lambda: watched.servers[1].say("DBSIZE") == watched.servers[0].say("DBSIZE"))
    dead.signal(signal.SIGKILL)
    with pytest.raises(StoreUnavailable):
        await client.recall(SAID)
    other = Client(store, uuid.uuid4().hex)
    begun = await stored(other)
    until(lambda: watched.primary() is not dead)
    assert await client.read(conversation) == raws(SAID)
    assert await other.read(begun) == raws(SAID)
    await store.close()


@CLIENTS
async def test_a_primary_that_was_frozen_gets_no_more_writes(
    watched: Watched, anyio_backend: str, *, library: bool
) -> None:
    """It believes to be the primary still until a Sentinel tells it; a quiet process has left it by then."""
    store = open_store(watched.url(), library=library)
    quiet = open_store(watched.url(), library=library)
    await store.ping()
    await quiet.ping()
    frozen = watched.primary()
    frozen.signal(signal.SIGSTOP)
    await stored(Client(store, uuid.uuid4().hex))
    until(lambda: watched.primary() is not frozen)
    await asyncio.sleep(1.5)  # a quiet process asks once a second
    frozen.signal(signal.SIGCONT)
    client = Client(quiet, uuid.uuid4().hex)
    conversation = await client.send(dialogue(3), assistant("reply"))
    assert await client.read(conversation) == raws(SAID)
    assert watched.primary().say("EXISTS", keys.message_list(conversation)) == 1
    await store.close()
    await quiet.close()


@CLIENTS
async def test_a_primary_that_hands_over_by_hand_loses_no_request(
    watched: Watched, anyio_backend: str, *, library: bool
) -> None:
    """``SENTINEL FAILOVER main COORDINATED``, as for an upgrade: all that was answered is there afterwards."""
    store = open_store(watched.url(), library=library)
    clients = [Client(store, uuid.uuid4().hex) for _ in range(30)]
    conversations = [await stored(client) for client in clients[:10]]
    handing_over = asyncio.create_task(asyncio.to_thread(watched.hand_over))
    for client in clients[10:]:
        conversations.append(await stored(client))
        await asyncio.sleep(0.05)
    await handing_over
    for client, conversation in zip(clients, conversations, strict=True):
        assert await client.read(conversation) == raws(SAID)
    await store.close()


@CLIENTS
async def test_a_start_needs_one_of_the_sentinels(watched: Watched, anyio_backend: str, *, library: bool) -> None:
    """Another refuses, and one is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        ports = (nobody.getsockname()[1], silent.getsockname()[1], watched.sentinels[1].port)
        store = RedisStore(watched.url(*ports), Codec(), ttl_seconds=3600, recall_timeout_seconds=5, library=library)
        client = Client(store, uuid.uuid4().hex)
        conversation = await client.send(dialogue(3), assistant("reply"))
        assert await client.read(conversation) == raws(SAID)
        await store.close()


async def test_the_doctor_examines_the_primary_that_the_sentinels_name(
    watched: Watched, anyio_backend: str, tmp_path: Path
) -> None:
    """And says so where none of them answers."""
    config = tmp_path / "tidemark.yaml"

    async def examined(url: str) -> list[Finding]:
        config.write_text(f"store:\n  url: {url}\n")
        settings = await asyncio.to_thread(load, config, {"HOME": str(tmp_path)})
        return await check_store(settings, lambda _: None)

    assert (await examined(watched.url()))[0].status == "ok"
    assert [finding.status for finding in await examined("redis+sentinel://127.0.0.1:1/main")] == ["error"]


@pytest.mark.parametrize(
    "url", ["redis+sentinel://h", "redis+sentinel://h/service/x", "redis+sentinel://h/service?sentinel_x=1"]
)
async def test_an_address_of_sentinels_names_a_service(url: str) -> None:
    """At the start, with the way to write it."""
    with pytest.raises(ConfigError, match="/SERVICE/0"):
        RedisStore(url, Codec(), ttl_seconds=None)
