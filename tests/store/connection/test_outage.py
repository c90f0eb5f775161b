"""The store is gone: every call says so at once, and goes on by itself when it is back."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.store.turns import Client, assistant, dialogue, raws
from tests.support.clock import JUMPING, TURN_SECONDS, jumping_loop
from tidemark.core.errors import ConfigError, StoreUnavailable
from tidemark.store.codec import Codec
from tidemark.store.connection.node import FIRST_SECONDS, LONGEST_SECONDS
from tidemark.store.connection.outage import OutageBackoff
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_a_missing_server_is_told_quickly_and_then_at_once(tmp_path: Path) -> None:
    """A dead store must not slow requests down; the client is told no addresses."""
    store = RedisStore(f"unix://{tmp_path}/nobody.sock", Codec(), ttl_seconds=None)
    client = Client(store, "ab")
    with pytest.raises(StoreUnavailable) as first:
        await client.recall(dialogue(1))
    assert "nobody.sock" not in str(first.value)
    assert "nobody.sock" in first.value.internal
    assert first.value.__cause__ is not None
    begun = jumping_loop().time()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/nobody.sock")
        listener.listen()
        listener.settimeout(0)
        for _ in range(100):
            with pytest.raises(StoreUnavailable):
                await client.recall(dialogue(1))
        with pytest.raises(BlockingIOError):  # nobody has tried to connect
            listener.accept()
    assert jumping_loop().time() - begun < 100 * TURN_SECONDS
    with pytest.raises(StoreUnavailable):
        await store.ping()
    await store.close()


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_a_silent_server_is_waited_for_no_longer_than_said() -> None:
    """It accepts the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        store = RedisStore(url, Codec(), ttl_seconds=None, recall_timeout_seconds=0.1)
        begun = jumping_loop().time()
        with pytest.raises(StoreUnavailable):
            await Client(store, "ab").recall(dialogue(1))
        assert jumping_loop().time() - begun == pytest.approx(0.1, abs=0.01)
        await store.close()


async def test_a_server_that_may_speak_no_tls_is_named_as_one() -> None:
    """It waits for more of what it takes for a command; the client and the log hear what to write."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rediss://127.0.0.1:{silent.getsockname()[1]}"
        store = RedisStore(url, Codec(), ttl_seconds=None, recall_timeout_seconds=0.1)
        for _ in range(2):  # the second one is not tried
            with pytest.raises(StoreUnavailable, match=r"Write redis:// in store\.url"):
                await Client(store, "ab").recall(dialogue(1))
        await store.close()


async def test_a_store_that_is_back_is_used_again(short_folder: Path) -> None:
    """Append-only persistence: what was recorded before the restart is known after it."""
    with EmbeddedValkey(short_folder) as server:
        store = RedisStore(server.url, Codec(), ttl_seconds=None, record_timeout_seconds=5, recall_timeout_seconds=5)
        client = Client(store, "ab")
        conversation = await client.send(dialogue(3), assistant("reply"))
        server.stop()
        with pytest.raises(StoreUnavailable):
            await client.recall(dialogue(3))
        server.start()
        with pytest.raises(StoreUnavailable):
            await client.recall(dialogue(3))
        await asyncio.sleep(FIRST_SECONDS + LONGEST_SECONDS + 0.5)
        assert (await client.recall(dialogue(3))).conversation == conversation
        assert await client.read(conversation) == raws([*dialogue(3), assistant("reply")])
        await store.close()


async def test_a_restart_between_two_calls_is_not_noticed(short_folder: Path) -> None:
    """A pooled connection that the server closed is replaced at once."""
    with EmbeddedValkey(short_folder) as server:
        store = RedisStore(server.url, Codec(), ttl_seconds=None, record_timeout_seconds=5, recall_timeout_seconds=5)
        client = Client(store, "ab")
        conversation = await client.send(dialogue(3), assistant("reply"))
        server.stop()
        server.start()
        assert (await client.recall(dialogue(3))).conversation == conversation
        await store.close()


async def test_a_cancelled_call_leaves_no_answer_behind(client: Client) -> None:
    """The client hung up: the next call on the connection does not read the last one's answer."""
    conversation = await client.send(dialogue(3), assistant("reply"))
    for delay in range(20):
        task = asyncio.create_task(client.recall(dialogue(300, "others")))
        await asyncio.sleep(delay / 20_000)
        task.cancel()
        assert (await client.recall(dialogue(3))).conversation == conversation


@pytest.mark.parametrize("url", ["http://x", "nonsense", "redis://h?nonsense=1", "redis+cluster:///x/y?db=z"])
async def test_an_address_that_cannot_be_used_is_a_configuration_error(url: str) -> None:
    """At the start, and not at the first request."""
    with pytest.raises(ConfigError):
        RedisStore(url, Codec(), ttl_seconds=None)


def test_rest_lasts_until_an_answer_and_a_refusal_until_a_write() -> None:
    """What answers need not take writes, and what took none before is not well because it answers."""
    begun: list[str] = []
    outage = OutageBackoff(lambda: begun.append("probe"))
    assert outage.is_well
    outage.failed()
    outage.refused()
    assert (outage.is_away, outage.refuses_writes, len(begun)) == (True, True, 2)
    outage.succeeded(100.0)
    assert (outage.is_away, outage.refuses_writes, outage.last_answer_expected()) == (False, True, 100.0)
    outage.wrote()
    assert outage.is_well
