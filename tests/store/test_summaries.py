"""Summaries: the first one stays, forks share what is still theirs, and none is used for another prefix."""

from __future__ import annotations

from dataclasses import replace

import redis

from tests.store.turns import RECIPE, Client, assistant, dialogue, raws, summary_of, user
from tidemark.core.conversation.prefix import chain_of, conversation_id
from tidemark.store.conversations import RedisStore


async def test_a_summary_is_recalled_with_its_conversation(client: Client) -> None:
    """The newest one whose prefix is a prefix of the request."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    for covered in (4, 8):
        await client.store.keep_summary(client.tenant, conversation, chain, summary_of(chain, covered))
    memory = await client.recall(dialogue(11))
    assert memory.summary is not None
    assert memory.summary.covered == 8
    assert [one.covered for one in await client.store.summaries(conversation)] == [4, 8]
    record = await client.store.conversation(conversation)
    assert record is not None
    assert record.summary_count == 2
    assert record.last_summary_at is not None


async def test_a_summary_far_back_is_recalled_too(client: Client) -> None:
    """However many messages have been said since."""
    conversation = await client.send(dialogue(299), assistant("message 300"))
    chain = chain_of(client.tenant, dialogue(300))
    kept = summary_of(chain, 50)
    await client.store.keep_summary(client.tenant, conversation, chain, kept)
    assert (await client.recall(dialogue(301))).summary == kept


async def test_a_summary_far_back_is_recalled_without_its_conversations_record(
    alone: RedisStore, admin: redis.Redis, tenant: str
) -> None:
    """Nothing is known of the messages then, but what was forwarded in their place stays the same (promise 5)."""
    client = Client(alone, tenant)
    conversation = await client.send(dialogue(150), assistant("message 151"))
    chain = chain_of(tenant, dialogue(150))
    kept = await alone.keep_summary(tenant, conversation, chain, summary_of(chain, 20))
    assert admin.delete(f"tm:{{{conversation[:32]}}}:c:{conversation[32:]}") == 1
    memory = await client.recall(dialogue(152))
    assert (memory.conversation, memory.stored_count, memory.summary) == (None, 0, kept)


async def test_the_first_summary_of_a_prefix_stays(client: Client) -> None:
    """Two workers summarize at once: both go on with the same bytes (promise 5)."""
    conversation = await client.send(dialogue(5), assistant("reply"))
    chain = chain_of(client.tenant, dialogue(5))
    first, second = summary_of(chain, 3, "first"), summary_of(chain, 3, "second")
    assert await client.store.keep_summary(client.tenant, conversation, chain, first) == first
    assert await client.store.keep_summary(client.tenant, conversation, chain, second) == first
    assert await client.store.summaries(conversation) == [first]


async def test_a_summary_is_of_its_recipe(client: Client) -> None:
    """What another strategy, template, version or model wrote is not used."""
    conversation = await client.send(dialogue(5), assistant("reply"))
    chain = chain_of(client.tenant, dialogue(5))
    other = replace(RECIPE, version=2)
    await client.store.keep_summary(client.tenant, conversation, chain, summary_of(chain, 3, recipe=other))
    assert (await client.recall(dialogue(5))).summary is None
    found = await client.store.recall(chain, other)
    assert found.summary is not None
    assert found.summary.recipe == other


async def test_a_summary_is_known_before_its_turn_is_recorded(client: Client) -> None:
    """A first request that is long already: the summary is kept though its upstream fails."""
    said = dialogue(201)
    chain = chain_of(client.tenant, said)
    kept = summary_of(chain, 100)
    await client.store.keep_summary(client.tenant, conversation_id(chain, 0), chain, kept)
    memory = await client.recall(said)
    assert (memory.conversation, memory.stored_count, memory.summary) == (None, 0, kept)
    conversation = await client.send(said, assistant("at last"))
    assert (await client.recall(said)).summary == kept
    assert await client.store.summaries(conversation) == [kept]
    assert await client.read(conversation) == raws([*said, assistant("at last")])


async def test_a_fork_has_the_summaries_before_it(client: Client) -> None:
    """Those of its prefix, and no later ones."""
    conversation = await client.send(dialogue(199), assistant("message 200"))
    chain = chain_of(client.tenant, dialogue(200))
    kept = [summary_of(chain, covered) for covered in (40, 80, 120)]
    for summary in kept:
        await client.store.keep_summary(client.tenant, conversation, chain, summary)
    edited = [*dialogue(100), user("edited")]
    assert (await client.recall(edited)).summary == kept[1]
    fork = await client.send(edited, assistant("done"))
    assert await client.store.summaries(fork) == kept[:2]
    long = [*edited, assistant("done"), *dialogue(99, "later")]
    assert await client.send(long, assistant("end")) == fork
    assert (await client.recall(long)).summary == kept[1]


async def test_an_edit_before_its_end_makes_a_summary_invalid(client: Client) -> None:
    """It stands for something that was not said; an older one may still do."""
    conversation = await client.send(dialogue(19), assistant("message 20"))
    chain = chain_of(client.tenant, dialogue(20))
    older = summary_of(chain, 4)
    for summary in (older, summary_of(chain, 12)):
        await client.store.keep_summary(client.tenant, conversation, chain, summary)
    said = dialogue(21)
    assert (await client.recall([*said[:11], assistant("edited"), *said[12:]])).summary == older
    assert (await client.recall([*said[:3], assistant("edited"), *said[4:]])).summary is None


async def test_a_rewind_falls_back_to_an_older_summary(client: Client) -> None:
    """The newest valid ancestor."""
    conversation = await client.send(dialogue(19), assistant("message 20"))
    chain = chain_of(client.tenant, dialogue(20))
    older = summary_of(chain, 4)
    for summary in (older, summary_of(chain, 12)):
        await client.store.keep_summary(client.tenant, conversation, chain, summary)
    assert (await client.recall(dialogue(9))).summary == older


async def test_branches_share_a_summary_of_what_they_share(client: Client) -> None:
    """Made for one of them after they parted, it serves the other as well."""
    parent = await client.send(dialogue(9), assistant("message 10"))
    edited = [*dialogue(8), user("edited")]
    await client.send(edited, assistant("done"))
    chain = chain_of(client.tenant, dialogue(10))
    kept = await client.store.keep_summary(client.tenant, parent, chain, summary_of(chain, 6))
    assert (await client.recall([*edited, assistant("done"), user("on")])).summary == kept


async def test_a_racing_fork_takes_its_own_summary_along(client: Client) -> None:
    """Two long first requests with one opening are told one id; each keeps the summary that is its own."""
    requests = [[*dialogue(1), *dialogue(200, side)] for side in ("left", "right")]
    chains = [chain_of(client.tenant, said) for said in requests]
    told = conversation_id(chains[0], 0)
    memories = [await client.recall(said) for said in requests]
    kept = [summary_of(chain, 100, side) for chain, side in zip(chains, ("l", "r"), strict=True)]
    for chain, summary in zip(chains, kept, strict=True):
        await client.store.keep_summary(client.tenant, told, chain, summary)
    for said, memory in zip(requests, memories, strict=True):
        await client.finish(said, assistant("done"), memory)
    for said, summary in zip(requests, kept, strict=True):
        memory = await client.recall([*said, assistant("done"), user("on")])
        assert (memory.summary, memory.diverges) == (summary, False)


async def test_what_a_failed_turn_left_does_not_stand_for_what_was_said_instead(client: Client) -> None:
    """It is kept, since the same request may come again; asked for what stands, the store passes over it."""
    conversation = await client.send(dialogue(3), assistant("message 4"))
    failed = chain_of(client.tenant, dialogue(9))
    standing, left = summary_of(failed, 2), summary_of(failed, 6)
    for summary in (standing, left):
        await client.store.keep_summary(client.tenant, conversation, failed, summary)
    assert await client.store.summaries(conversation, standing=True) == [standing]
    edited = [*dialogue(4), user("edited"), assistant("a"), user("b")]
    assert await client.send(edited, assistant("c")) == conversation
    assert await client.store.summaries(conversation, standing=True) == [standing]
    assert await client.store.summaries(conversation) == [standing, left]


async def test_a_summary_from_before_a_fork_stands_for_the_fork_too(client: Client) -> None:
    """Its prefix is the parent's to tell."""
    conversation = await client.send(dialogue(7), assistant("message 8"))
    chain = chain_of(client.tenant, dialogue(8))
    shared = summary_of(chain, 4)
    await client.store.keep_summary(client.tenant, conversation, chain, shared)
    fork = await client.send([*dialogue(6), user("edited")], assistant("done"))
    assert await client.store.summaries(fork, standing=True) == [shared]
