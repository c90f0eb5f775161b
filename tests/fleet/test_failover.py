"""A primary of a cluster dies under load: its replica has its place without a human, and nobody gets a wrong answer."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Iterator

import pytest

from tests.fleet.conftest import open_store
from tests.store.turns import Client, assistant, dialogue, raws, user
from tests.support.clusters import WAIT_SECONDS, Cluster, Valkey, running_cluster, until
from tests.support.waiting import until as soon_as
from tidemark.core.conversation.prefix import split_id
from tidemark.core.errors import StoreUnavailable
from tidemark.store import keys

pytestmark = pytest.mark.fleet
NODE_TIMEOUT_MS = 2000


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries, each with a replica."""
    options = ["--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--cluster-require-full-coverage", "no"]
    options += ["--repl-diskless-sync-delay", "0"]
    with running_cluster(tmp_path_factory.mktemp("cluster"), replicas=1, options=options) as running:
        yield running


class Talk:
    """A conversation that goes on, through one of several processes for each turn, until it is ended."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self.said = dialogue(3)
        self.conversation = ""
        self.turns = self.refused = 0
        self.is_ended = False

    async def turn(self) -> None:
        """One turn of a client that sends all its messages; what the store knows of it is looked at first."""
        client = self.clients[self.turns % len(self.clients)]
        reply = assistant(f"reply {len(self.said)}")
        try:
            stored = await client.recall(self.said)
            assert not stored.diverges
            conversation = await client.finish(self.said, reply, stored)
        except StoreUnavailable:
            self.refused += 1
            await asyncio.sleep(0.02)
            return
        self.conversation = self.conversation or conversation
        self.said += [reply, user(f"question {len(self.said)}")]
        self.turns += 1

    async def run(self) -> None:
        """Turn after turn."""
        while not self.is_ended:
            await self.turn()


async def wait_for_turns(talks: list[Talk]) -> None:
    """Wait until every conversation has gone on twice more."""
    before = [talk.turns for talk in talks]
    await soon_as(lambda: all(talk.turns >= turns + 2 for talk, turns in zip(talks, before, strict=True)), WAIT_SECONDS)


def primary_of(cluster: Cluster, talk: Talk) -> Valkey:
    """The server that has a conversation."""
    return cluster.owner(keys.family_prefix(split_id(talk.conversation)[0]))


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_a_replica_takes_the_place_of_a_lost_primary(
    cluster: Cluster, anyio_backend: str, fault: signal.Signals
) -> None:
    """Conversations of the other primaries never notice; its own go on, whole, when its replica is the primary."""
    stores = [open_store(cluster.url()), open_store(cluster.url(cluster.nodes[0]))]
    talks = []
    for _ in range(12):
        tenant = uuid.uuid4().hex
        talks.append(Talk([Client(store, tenant) for store in stores]))
        await talks[-1].turn()
    running = [asyncio.create_task(talk.run()) for talk in talks]
    await wait_for_turns(talks)
    lost = primary_of(cluster, talks[0])
    concerned = [talk for talk in talks if primary_of(cluster, talk) is lost]
    lost.signal(fault)
    await wait_for_turns(talks)
    assert primary_of(cluster, talks[0]) is not lost
    if fault is signal.SIGSTOP:
        lost.signal(signal.SIGCONT)
    else:
        lost.start()
    await asyncio.to_thread(until, lambda: lost.say("ROLE")[0] == b"slave")
    await wait_for_turns(talks)
    for talk in talks:
        talk.is_ended = True
    await asyncio.gather(*running)
    for talk in talks:
        assert bool(talk.refused) is (talk in concerned)
        first, second = talk.clients
        assert (await first.recall(talk.said)).conversation == talk.conversation
        assert await second.read(talk.conversation) == raws(talk.said[:-1])
    for store in stores:
        await store.close()
