"""Conversations go on while their slot moves from one primary of a cluster to another, and stays half moved."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.fleet.conftest import open_patient_store, open_store
from tests.store.turns import Client, assistant, dialogue, raws, summary_of, turn_of, user
from tests.support.clusters import Cluster, Valkey
from tests.support.rights import LOGIN
from tidemark.core.conversation.prefix import chain_of, split_id
from tidemark.core.errors import StoreUnavailable
from tidemark.store import keys
from tidemark.store.conversations import RedisStore

pytestmark = pytest.mark.fleet


@pytest.fixture(params=["own", "library"])
async def store(request: pytest.FixtureRequest, cluster: Cluster, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """A store over Tidemark's own connections, and over redis-py's; both are patient."""
    opened = open_patient_store(cluster.url(cluster.nodes[0]), library=request.param == "library")
    yield opened
    await opened.close()


class Move:
    """The move of the slot of a conversation's family."""

    def __init__(self, cluster: Cluster, family: str) -> None:
        prefix = keys.family_prefix(family)
        self.cluster, self.slot, self.source = cluster, cluster.slot(prefix), cluster.owner(prefix)
        self.target: Valkey = next(node for node in cluster.primaries if node is not self.source)

    def begin(self) -> None:
        """Open the slot at both ends."""
        self.cluster.begin_move(self.slot, self.source, self.target)

    def some(self, count: int) -> int:
        """Move some keys."""
        return self.cluster.move_keys(self.slot, self.source, self.target, count)

    def end(self) -> None:
        """Move the rest, and give the slot to its new owner."""
        while self.some(100):
            pass
        self.cluster.end_move(self.slot, self.source, self.target)


@pytest.mark.parametrize("moved", [0, 1, 3, 1000])
async def test_a_stored_history_goes_on_while_its_slot_is_half_moved(
    cluster: Cluster, store: RedisStore, moved: int
) -> None:
    """Whatever has gone already: no message is missing, no second conversation begins, and all is there afterwards."""
    client = Client(store, uuid.uuid4().hex)
    said = dialogue(9)
    conversation = await client.send(said, assistant("reply 0"))
    said.append(assistant("reply 0"))
    family, own = split_id(conversation)
    move = Move(cluster, family)
    move.begin()
    move.some(moved)
    for number in range(1, 4):
        started = await store.turns.start_turn(family, own, client.tenant, 10)
        assert started is not None
        assert started.lease is not None
        assert await client.read(conversation) == raws(said)
        said += [user(f"question {number}"), assistant(f"reply {number}")]
        turn = turn_of(client.tenant, said, known=len(said) - 2, conversation=conversation)
        turn = replace(turn, lease_name=started.lease.name, lease_value=started.lease.value)
        assert await store.record(turn) == conversation
    move.end()
    assert await client.read(conversation) == raws(said)
    assert (await client.recall(said)).stored_count == len(said)


@pytest.mark.parametrize("moved", [0, 1, 3, 1000])
async def test_a_client_that_sends_all_is_known_while_its_slot_is_half_moved(
    cluster: Cluster, store: RedisStore, moved: int
) -> None:
    """It forks, is summarized and forgotten as on any server, whatever has gone already."""
    client = Client(store, uuid.uuid4().hex)
    said = dialogue(9)
    conversation = await client.send(said, assistant("reply"))
    move = Move(cluster, split_id(conversation)[0])
    move.begin()
    move.some(moved)
    chain = chain_of(client.tenant, said)
    summary = summary_of(chain, 4)
    assert await store.keep_summary(client.tenant, conversation, chain, summary) == summary
    found = await client.recall(said)
    assert (found.conversation, found.stored_count, found.summary) == (conversation, 9, summary)
    fork = await client.send([*said[:5], user("otherwise")], assistant("another reply"))
    assert fork != conversation
    move.end()
    assert await client.read(fork) == raws([*said[:5], user("otherwise"), assistant("another reply")])
    assert await client.read(conversation) == raws([*said, assistant("reply")])


async def test_a_conversation_begins_in_a_slot_that_is_on_its_way(cluster: Cluster, store: RedisStore) -> None:
    """Nothing of it is anywhere yet, so it begins at the new server."""
    client = Client(store, uuid.uuid4().hex)
    said = dialogue(3)
    move = Move(cluster, chain_of(client.tenant, said).family)
    move.begin()
    conversation = await client.send(said, assistant("reply"))
    assert (await client.recall(said)).conversation == conversation
    assert await store.forget(conversation, client.tenant, "", 1.0)
    conversation = await client.send(said, assistant("reply"))
    move.end()
    assert await client.read(conversation) == raws([*said, assistant("reply")])


async def test_a_slot_whose_rest_cannot_be_moved_refuses_its_conversations_and_no_others(
    cluster: Cluster, anyio_backend: str
) -> None:
    """A user without the right to move keys: no answer from a part, no outage, and all is back in the end."""
    for node in cluster.nodes:
        node.say("ACL", "SETUSER", "proxy", "on", ">pw", "~*", "&*", "+@all", "-migrate")
    store = open_store(cluster.url(cluster.nodes[0]).replace(LOGIN, "proxy:pw@"))
    client, said = Client(store, uuid.uuid4().hex), dialogue(9)
    conversation = await client.send(said, assistant("reply"))
    move = Move(cluster, split_id(conversation)[0])
    move.begin()
    move.some(2)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await client.recall(said)
        assert store.is_well
    waiting = asyncio.create_task(store.turns.start_turn(*split_id(conversation), client.tenant, 10))
    move.end()
    started = await waiting
    assert started is not None
    assert (await client.recall(said)).stored_count == 9
    assert await client.read(conversation) == raws([*said, assistant("reply")])
    await store.close()


async def test_conversations_go_on_while_slots_move_to_and_fro(cluster: Cluster, store: RedisStore) -> None:
    """As a resharding does it, some keys at a time, under load: nothing fails and nothing is missing."""
    clients = [Client(store, uuid.uuid4().hex) for _ in range(8)]
    said = {client.tenant: dialogue(3) for client in clients}
    conversations = {client.tenant: await client.send(dialogue(3), assistant("reply 3")) for client in clients}
    moving = True

    async def talk(client: Client) -> int:
        turns, mine = 0, said[client.tenant]
        while moving:
            mine += [assistant(f"reply {len(mine)}"), user(f"question {len(mine)}")]
            assert await client.send(mine, assistant(f"reply {len(mine)}")) == conversations[client.tenant]
            turns += 1
        return turns

    talks = [asyncio.create_task(talk(client)) for client in clients]
    for _ in range(2):
        for client in clients:
            move = Move(cluster, split_id(conversations[client.tenant])[0])
            await asyncio.to_thread(move.begin)
            for _ in range(3):
                await asyncio.to_thread(move.some, 2)
            await asyncio.to_thread(move.end)
    moving = False
    assert min(await asyncio.gather(*talks)) > 0
    for client in clients:
        mine = [*said[client.tenant], assistant(f"reply {len(said[client.tenant])}")]
        assert await client.read(conversations[client.tenant]) == raws(mine)
