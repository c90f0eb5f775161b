"""Summaries that tell system messages: the chain leaves those out, so a request finds only what it sent itself."""

from __future__ import annotations

import pytest

from tests.store.turns import RECIPE, Client, assistant, dialogue, summary_of, system, user
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of, split_id
from tidemark.store import references
from tidemark.store.leases import RedisLeases

ALICE, BOB = system("the customer is ALICE"), system("the customer is BOB")


def holding(record: Message | None, count: int = 9, at: int = 2) -> list[Message]:
    """A talk with a person's record after its first ``at`` messages."""
    said = dialogue(count)
    return [*said[:at], record, *said[at:]] if record else said


async def test_summaries_of_one_prefix_stand_beside_each_other(client: Client) -> None:
    """Each request finds the one that tells its own system messages; nobody's takes another's place."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    made = {record: summary_of(chain, 6, record.text, absorbed=[record]) for record in (ALICE, BOB)}
    plain = summary_of(chain, 4)
    for one in (*made.values(), plain):
        assert await client.store.keep_summary(client.tenant, conversation, chain, one) == one
    for record, summary in made.items():
        assert (await client.recall(holding(record))).summary == summary
        assert await client.store.summary(chain, 6, RECIPE, absorbed=summary.absorbed) == summary
    assert (await client.recall(holding(None))).summary == plain
    assert (await client.recall(holding(system("the customer is CAROL")))).summary == plain
    assert await client.store.summary(chain, 6, RECIPE) is None
    assert len(await client.store.summaries(conversation)) == 3


@pytest.mark.parametrize(("at", "found"), [(0, False), (1, True), (6, True), (7, False), (9, False)])
async def test_an_absorbed_message_counts_only_inside_the_prefix(client: Client, at: int, *, found: bool) -> None:
    """One that stands before all others, or behind what the summary covers, is sent as it is."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    made = summary_of(chain, 6, absorbed=[ALICE])
    await client.store.keep_summary(client.tenant, conversation, chain, made)
    assert (await client.recall(holding(ALICE, at=at))).summary == (made if found else None)


async def test_every_absorbed_message_must_be_there(client: Client) -> None:
    """One of two is not enough; one more than those does no harm."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    made = summary_of(chain, 6, absorbed=[ALICE, BOB])
    await client.store.keep_summary(client.tenant, conversation, chain, made)
    assert (await client.recall(holding(ALICE))).summary is None
    both = [*holding(ALICE)[:4], system("more"), BOB, *holding(ALICE)[4:]]
    assert (await client.recall(both)).summary == made


async def test_a_prepared_summary_waits_for_those_whose_messages_it_tells(client: Client) -> None:
    """And for nobody else, neither when it is there nor while it is being made."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    made = summary_of(chain, 6, absorbed=[ALICE])
    leases, name = RedisLeases(client.store.ask), split_id(conversation)[1]
    lease = await leases.take(name, chain, 6, RECIPE, 30, absorbed=made.absorbed)
    mine, other = await client.recall(holding(ALICE)), await client.recall(holding(BOB))
    assert (mine.preparing_count, mine.preparing_absorbed) == (6, made.absorbed)
    assert (other.preparing_count, other.preparing_absorbed) == (0, ())
    await client.store.keep_summary(client.tenant, conversation, chain, made, waiting=True, lease=lease)
    assert (await client.recall(holding(ALICE))).prepared == made
    assert (await client.recall(holding(BOB))).prepared is None


async def test_a_fork_inherits_summaries_with_what_they_tell(client: Client) -> None:
    """A fork's request is held against its own system messages like any other."""
    conversation = await client.send(holding(ALICE), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    made = summary_of(chain, 6, absorbed=[ALICE])
    await client.store.keep_summary(client.tenant, conversation, chain, made)
    await client.send(holding(ALICE), assistant("another answer"))
    grown = [assistant("another answer"), user("And then?")]
    assert (await client.recall([*holding(ALICE), *grown])).summary == made
    assert (await client.recall([*holding(BOB), *grown])).summary is None


async def test_a_conversation_that_is_forgotten_takes_all_its_variants_along(client: Client) -> None:
    """Nothing of what absorbed messages say stays behind under a key of its own."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(9))
    for record in (ALICE, BOB):
        made = summary_of(chain, 6, record.text, absorbed=[record])
        await client.store.keep_summary(client.tenant, conversation, chain, made)
    await client.store.forget(conversation, client.tenant, "", 2e9)
    for record in (ALICE, BOB):
        assert await client.store.summary(chain, 6, RECIPE, absorbed=[record.digest]) is None


def test_a_lease_for_other_system_messages_is_of_no_use() -> None:
    """What is being made is told by the lease: prefix, recipe and absorbed messages."""
    chain = chain_of("aa", dialogue(9))
    purpose = references.reference(6, chain.at(6), RECIPE, [ALICE.digest, BOB.digest])
    lease = b"1-ab:" + purpose
    both = {ALICE.digest: 1, BOB.digest: 6}
    assert references.prepared_for(lease, chain, RECIPE, both)[0] == 6
    assert references.prepared_for(lease, chain, RECIPE, {**both, BOB.digest: 7}) == (0, ())
    assert references.prepared_for(lease, chain, RECIPE, {ALICE.digest: 1}) == (0, ())
    assert references.prepared_for(lease[:-1], chain, RECIPE, both) == (0, ())
