"""A turn that counts as stored only when replicas have it: what the death of a primary costs with and without that.

The replica follows through a relay that the test cuts, so the primary dies with writes that it had not passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.conftest import PATIENCE_SECONDS
from tests.store.turns import Client, assistant, dialogue, raws
from tests.support.clusters import Valkey, Watched, free_ports, running_cluster, until
from tests.support.rights import LOGIN, documented_rights, make_user, refusals, sentinel_rights
from tidemark.core.errors import StoreUnavailable
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

pytestmark = pytest.mark.fleet
FRESH = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
SAID = [*dialogue(3), assistant("reply")]


class Relay:
    """Passes bytes on to a server until it is cut; what comes after that is never delivered."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_cut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Pass nothing on from now on."""
        self._is_cut.set()

    def close(self) -> None:
        """Take no connections any more."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # the server is dead
                    near.close()
                    continue
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(65_536):
                if not self._is_cut.is_set():
                    sink.sendall(data)


class Pair:
    """A primary, and a replica that follows it through a relay."""

    def __init__(self, folder: Path) -> None:
        first, second = free_ports(2)
        self.primary, self.replica = Valkey(folder / "primary", first, FRESH), Valkey(folder / "replica", second, FRESH)
        self.relay = Relay(first)
        for server in (self.primary, self.replica):
            make_user(server.admin, documented_rights())
        self.replica.say("REPLICAOF", "127.0.0.1", self.relay.port)
        until(lambda: self.primary.say("WAIT", 1, 10) == 1 and self.replica.say("ROLE")[3] == b"connected")

    def fail_over(self) -> None:
        """Kill the primary, and let the replica take its place."""
        self.primary.signal(signal.SIGKILL)
        self.replica.say("REPLICAOF", "NO", "ONE")

    def end(self) -> None:
        """End both."""
        self.relay.close()
        for server in (self.primary, self.replica):
            server.end()


def has_all(pair: Pair) -> bool:
    """Return whether the replica has all that was written so far: ``WAIT`` speaks of the asker's own writes only."""
    pair.primary.say("SET", "tm:asked", 1)
    return bool(pair.primary.say("WAIT", 1, 100) == 1)


def open_store(url: str, wait_replicas: int) -> RedisStore:
    """A store with time to spare: the tests' machine may be busy, and what they test is no outage."""
    return RedisStore(
        url,
        Codec(),
        ttl_seconds=3600,
        recall_timeout_seconds=PATIENCE_SECONDS,
        record_timeout_seconds=PATIENCE_SECONDS,
        wait_replicas=wait_replicas,
        wait_seconds=2,
    )


def address(server: Valkey) -> str:
    """A server's address for the user of the documented rights."""
    return f"redis://{LOGIN}127.0.0.1:{server.port}"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A primary with its replica, whose user has the documented rights and no others."""
    running = Pair(tmp_path)
    yield running
    assert refusals(running.replica.admin) == []
    running.end()


async def acknowledged(store: RedisStore, count: int) -> list[tuple[Client, str]]:
    """Send turns of as many conversations at once; return those that were acknowledged."""

    async def send(client: Client) -> list[tuple[Client, str]]:
        with contextlib.suppress(StoreUnavailable):
            return [(client, await client.send(dialogue(3), assistant("reply")))]
        return []

    return [
        one
        for sent in await asyncio.gather(*[send(Client(store, uuid.uuid4().hex)) for _ in range(count)])
        for one in sent
    ]


async def lost(pair: Pair, sent: list[tuple[Client, str]]) -> int:
    """How many of these turns the new primary does not know."""
    store = open_store(address(pair.replica), 0)
    read = [await Client(store, client.tenant).read(conversation) for client, conversation in sent]
    await store.close()
    return sum(messages != raws(SAID) for messages in read)


@pytest.mark.parametrize(("wait_replicas", "expected"), [(0, 20), (1, 0)])
async def test_a_primary_dies_before_it_has_passed_turns_on(
    pair: Pair, anyio_backend: str, wait_replicas: int, expected: int
) -> None:
    """Without the setting its last turns were acknowledged and are lost; with it they were never acknowledged."""
    store = open_store(address(pair.primary), wait_replicas)
    before = await acknowledged(store, 20)
    assert len(before) == 20
    until(lambda: has_all(pair))
    pair.relay.cut()
    after = await acknowledged(store, 20)
    assert len(after) == expected
    await store.close()
    pair.fail_over()
    assert await lost(pair, before) == 0
    assert await lost(pair, after) == expected


async def test_a_kill_in_the_middle_of_turns_loses_no_acknowledged_one(pair: Pair, anyio_backend: str) -> None:
    """Each acknowledged turn is at the replica, whatever the primary was doing when it was killed."""
    store = open_store(address(pair.primary), 1)
    sent: list[tuple[Client, str]] = []
    enough = asyncio.Event()

    async def go_on() -> None:
        while turns := await acknowledged(store, 1):
            sent.extend(turns)
            if len(sent) >= 100:
                enough.set()

    talks = [asyncio.create_task(go_on()) for _ in range(8)]
    await enough.wait()
    pair.fail_over()
    await asyncio.gather(*talks)
    await store.close()
    assert await lost(pair, sent) == 0


async def test_a_turn_without_enough_replicas_says_so_and_delays_no_other_call(pair: Pair, anyio_backend: str) -> None:
    """The reason names the mend; the store is used on, and a replica that is back counts again."""
    store = open_store(address(pair.primary), 2)
    client = Client(store, uuid.uuid4().hex)
    writing = asyncio.create_task(client.send(dialogue(3), assistant("reply")))
    other = Client(store, uuid.uuid4().hex)
    while not writing.done():
        await other.recall(SAID)
    with pytest.raises(StoreUnavailable, match=r"too few replicas.*store\.wait_replicas"):
        await writing
    await store.close()
    store = open_store(address(pair.primary), 1)
    assert await acknowledged(store, 3)
    await store.close()


async def test_a_cluster_and_sentinels_wait_for_replicas_too(tmp_path: Path, anyio_backend: str) -> None:
    """Turns are stored while the replicas follow; where they are gone, none is acknowledged."""
    options = ["--repl-diskless-sync-delay", "0"]
    with running_cluster(tmp_path / "cluster", replicas=1, options=options) as cluster:
        cluster.admit(documented_rights("cluster"))
        store = open_store(cluster.url(), 1)
        assert len(await acknowledged(store, 20)) == 20
        for replica in cluster.nodes[3:]:
            replica.signal(signal.SIGKILL)
        assert await acknowledged(store, 20) == []
        await store.close()
        assert [refusal for node in cluster.primaries for refusal in refusals(node.admin)] == []
    watched = Watched(tmp_path / "watched")
    try:
        watched.admit(documented_rights("sentinel"), sentinel_rights())
        store = open_store(watched.url(), 1)
        assert len(await acknowledged(store, 20)) == 20
        replica = next(server for server in watched.servers if server is not watched.primary())
        replica.signal(signal.SIGKILL)
        assert await acknowledged(store, 20) == []
        await store.close()
        assert watched.refusals() == []
    finally:
        watched.end()
