"""Summaries that wait for their use, and the leases that they are made under."""

from __future__ import annotations

import asyncio

from tests.store.turns import RECIPE, Client, assistant, dialogue, summary_of, user
from tests.support.waiting import until
from tidemark.core.conversation.prefix import chain_of, split_id
from tidemark.core.conversation.records import ConversationState
from tidemark.store.leases import RedisLeases


async def test_a_prepared_summary_waits_beside_the_one_in_use(client: Client) -> None:
    """It is recalled as such, and takes the other's place when it is kept once more."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    used, prepared = summary_of(chain, 3), summary_of(chain, 7)
    await client.store.keep_summary(client.tenant, conversation, chain, used)
    await client.store.keep_summary(client.tenant, conversation, chain, prepared, waiting=True)
    memory = await client.recall(dialogue(11))
    assert (memory.summary, memory.prepared) == (used, prepared)
    assert await client.store.summaries(conversation) == [used]

    await client.store.keep_summary(client.tenant, conversation, chain, prepared)
    memory = await client.recall(dialogue(11))
    assert (memory.summary, memory.prepared) == (prepared, None)
    assert await client.store.summaries(conversation) == [used, prepared]
    assert await client.store.summary(chain, 7, RECIPE, waiting=True) is None


async def test_a_prepared_summary_of_another_branch_or_recipe_or_of_an_older_prefix_is_not_recalled(
    client: Client,
) -> None:
    """It stands for its prefix only, and brings something new."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    await client.store.keep_summary(client.tenant, conversation, chain, summary_of(chain, 7), waiting=True)
    other = [*dialogue(6), user("edited")]
    assert (await client.recall(other)).prepared is None
    await client.store.keep_summary(client.tenant, conversation, chain, summary_of(chain, 8))
    assert (await client.recall(dialogue(11))).prepared is None


async def test_of_those_that_wait_only_the_newest_are_kept(client: Client) -> None:
    """Eight; nothing piles up that is never used."""
    conversation = await client.send(dialogue(29), assistant("message 30"))
    chain = chain_of(client.tenant, dialogue(29))
    for covered in range(1, 12):
        await client.store.keep_summary(client.tenant, conversation, chain, summary_of(chain, covered), waiting=True)
    waiting = [await client.store.summary(chain, covered, RECIPE, waiting=True) for covered in range(1, 12)]
    assert [one is not None for one in waiting] == [False] * 3 + [True] * 8


async def test_one_of_many_gets_a_lease_and_the_next_one_when_it_is_over(client: Client) -> None:
    """Single flight across processes; a holder that died gives way within the lease's time."""
    leases, chain = RedisLeases(client.store.ask), chain_of(client.tenant, dialogue(9))
    taken = await asyncio.gather(*(leases.take("one", chain, 4, RECIPE, 30) for _ in range(50)))
    held = [lease for lease in taken if lease is not None]
    assert len(held) == 1
    assert await leases.renew(held[0], 30)
    await leases.release(held[0])
    assert not await leases.is_taken(chain.family, "one")

    dead = await leases.take("one", chain, 4, RECIPE, 0.05)
    assert dead is not None

    async def is_over() -> bool:
        return not await leases.is_taken(chain.family, "one")

    await until(is_over)
    successor = await leases.take("one", chain, 4, RECIPE, 30)
    assert successor is not None
    assert successor.value != dead.value
    assert not await leases.renew(dead, 30)
    await leases.release(dead)
    assert await leases.is_taken(chain.family, "one")


async def test_a_holder_that_only_seemed_dead_is_fenced_off(client: Client) -> None:
    """What it made is not kept once somebody else holds the lease; what is stored by then is what counts."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    leases, chain = RedisLeases(client.store.ask), chain_of(client.tenant, dialogue(9))
    late, timely = summary_of(chain, 4, "late"), summary_of(chain, 4, "timely")
    slow = await leases.take("one", chain, 4, RECIPE, 30)
    assert slow is not None
    await leases.release(slow)  # as if its time had run out
    quick = await leases.take("one", chain, 4, RECIPE, 30)
    keep = client.store.keep_summary
    assert await keep(client.tenant, conversation, chain, late, lease=slow) is None
    assert await keep(client.tenant, conversation, chain, timely, lease=quick) == timely
    assert await keep(client.tenant, conversation, chain, late, lease=slow) == timely


async def test_a_preparation_under_way_is_recalled_by_the_branch_that_it_is_for(client: Client) -> None:
    """And by no other: an edited request has nothing to wait for."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    name = split_id(conversation)[1]
    lease = await RedisLeases(client.store.ask).take(name, chain, 7, RECIPE, 30)
    assert lease is not None
    assert (await client.recall(dialogue(11))).preparing_count == 7
    assert (await client.recall([*dialogue(6), user("edited")])).preparing_count == 0
    assert (await client.recall(dialogue(3))).preparing_count == 0
    assert ConversationState().preparing_count == 0


async def test_a_fork_inherits_what_waits_and_what_is_being_prepared(client: Client) -> None:
    """Another answer to the same question: the prefix is the same, so nobody has to make it again."""
    asked = dialogue(9)
    conversation = await client.send(asked, assistant("message 10"))
    chain = chain_of(client.tenant, asked)
    lease = await RedisLeases(client.store.ask).take(split_id(conversation)[1], chain, 7, RECIPE, 30)
    fork = await client.send(asked, assistant("another answer"))
    assert fork != conversation
    grown = [*asked, assistant("another answer"), user("And then?")]
    memory = await client.recall(grown)
    assert (memory.preparing_count, memory.preparing_lease) == (7, split_id(conversation)[1])
    made = summary_of(chain, 7)
    await client.store.keep_summary(client.tenant, conversation, chain, made, waiting=True, lease=lease)
    assert (await client.recall(grown)).prepared == made


async def test_who_loses_the_lease_of_a_preparation_stores_nothing(client: Client) -> None:
    """A summary made by hand ends it: what it took in is not valid any more."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    leases, chain = RedisLeases(client.store.ask), chain_of(client.tenant, dialogue(9))
    lease = await leases.take(split_id(conversation)[1], chain, 7, RECIPE, 30)
    assert lease is not None
    await leases.release(lease)
    kept = await client.store.keep_summary(
        client.tenant, conversation, chain, summary_of(chain, 7), waiting=True, lease=lease
    )
    assert kept is None
    assert (await client.recall(dialogue(11))).prepared is None


async def test_a_rewind_uses_the_newest_summary_that_leaves_its_newest_message(client: Client) -> None:
    """One of all of its messages is of no use, and hides no other."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    older, newer = summary_of(chain, 3), summary_of(chain, 7)
    for one in (older, newer):
        await client.store.keep_summary(client.tenant, conversation, chain, one)
    assert (await client.recall(dialogue(7))).summary == older
