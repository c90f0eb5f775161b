"""A primary of a cluster is frozen, dead or unknown: its conversations go on without the store, all others with it."""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.fleet.conftest import open_store
from tests.store.turns import Client, assistant, dialogue, raws
from tests.support.clusters import WAIT_SECONDS, Cluster, Valkey, running_cluster
from tests.support.waiting import until
from tidemark.core.errors import StoreUnavailable
from tidemark.store import keys
from tidemark.store.connection.node import MOST
from tidemark.store.conversations import RedisStore

pytestmark = pytest.mark.fleet


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries that serve their own slots whatever becomes of the others."""
    options = ["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000"]
    with running_cluster(tmp_path_factory.mktemp("cluster"), options=options) as running:
        yield running


@pytest.fixture
async def store(cluster: Cluster, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """A store that has found the cluster."""
    opened = open_store(cluster.url())
    await opened.ping()
    yield opened
    await opened.close()


async def client_at(store: RedisStore, cluster: Cluster, node: Valkey) -> Client:
    """A client with a conversation in a slot of this primary."""
    while True:
        client = Client(store, uuid.uuid4().hex)
        conversation = await client.send(dialogue(3), assistant("reply"))
        if cluster.owner(keys.message_list(conversation)) is node:
            return client


async def is_known(client: Client) -> bool:
    """Whether the store answers for this client's conversation, and rightly."""
    try:
        return (await client.recall([*dialogue(3), assistant("reply")])).stored_count == 4
    except StoreUnavailable:
        return False


async def wait_until_known(client: Client) -> None:
    """Wait until the store is used for this client again."""
    await until(lambda: is_known(client), WAIT_SECONDS)


async def test_a_frozen_primary_delays_its_own_requests_once_and_no_others(cluster: Cluster, store: RedisStore) -> None:
    """Answers of the other primaries do not prolong the wait for it, and its outage is not theirs."""
    frozen, *others = [await client_at(store, cluster, node) for node in cluster.primaries]
    answers: list[bool] = []
    ended = asyncio.Event()

    async def ask_others() -> None:
        while not ended.is_set():
            answers.extend([await is_known(other) for other in others])

    asking = asyncio.create_task(ask_others())
    cluster.primaries[0].signal(signal.SIGSTOP)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert not await is_known(frozen)
    assert loop.time() - begun < 0.25 * MOST / 2  # as long as the freeze, or 16 times 0.25 s, where others prolong it
    assert not await is_known(frozen)
    assert not store.is_well
    ended.set()
    await asking
    assert answers
    assert all(answers)
    cluster.primaries[0].signal(signal.SIGCONT)
    await wait_until_known(frozen)


async def test_a_dead_primary_takes_only_its_own_slots_with_it(cluster: Cluster, store: RedisStore) -> None:
    """Without a replica its slots wait for its return; the two others never fail meanwhile."""
    dead, *others = [await client_at(store, cluster, node) for node in cluster.primaries]
    cluster.primaries[0].signal(signal.SIGKILL)
    for _ in range(50):
        assert not await is_known(dead)
        assert all([await is_known(other) for other in others])
        await asyncio.sleep(0.02)
    with pytest.raises(StoreUnavailable):
        await store.ping()
    cluster.primaries[0].start()
    await until(lambda: store.is_well, WAIT_SECONDS)
    conversation = await dead.send(dialogue(3), assistant("reply"))  # it came back without its data
    assert await dead.read(conversation) == raws([*dialogue(3), assistant("reply")])


@pytest.mark.parametrize("library", [False, True], ids=["own", "library"])
async def test_a_start_needs_one_of_the_servers_that_the_address_names(
    cluster: Cluster, anyio_backend: str, *, library: bool
) -> None:
    """The others may refuse, or be silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        ports = (nobody.getsockname()[1], silent.getsockname()[1], cluster.nodes[2].port)
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        for _ in range(5):
            store = open_store(url, library=library)
            client = Client(store, uuid.uuid4().hex)
            conversation = await client.send(dialogue(3), assistant("reply"))
            assert await client.read(conversation) == raws([*dialogue(3), assistant("reply")])
            await store.close()


async def test_slots_without_a_server_are_told_and_concern_no_others(cluster: Cluster, store: RedisStore) -> None:
    """Readiness says so until a server takes them."""
    node = cluster.primaries[1]
    uncovered, covered = await client_at(store, cluster, node), await client_at(store, cluster, cluster.primaries[2])
    slot = cluster.slot(keys.family_prefix(split_family(uncovered)))
    for one in cluster.nodes:
        one.say("CLUSTER", "DELSLOTS", slot)
    fresh = open_store(cluster.url())
    with pytest.raises(StoreUnavailable) as told:
        await fresh.ping()
    assert str(slot) in told.value.internal
    uncovered.store = covered.store = fresh
    assert not await is_known(uncovered)
    assert await is_known(covered)
    node.say("CLUSTER", "ADDSLOTS", slot)
    await wait_until_known(uncovered)
    await fresh.close()


def split_family(client: Client) -> str:
    """The family of a client's conversation."""
    return client.told[-1][:32]
