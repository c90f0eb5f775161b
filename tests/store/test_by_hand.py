"""What compaction by hand needs of the store: a summary that is replaced, and the newest system messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.conversation.prefix import chain_of
from proxy.store.by_hand import RedisByHand
from proxy.store.codec import Codec
from proxy.store.conversations import RedisStore
from tests.store.turns import Client, assistant, dialogue, raws, summary_of, system, turn_of, user


@pytest.fixture
def by_hand(store: RedisStore) -> RedisByHand:
    """Upon the store's connections."""
    return RedisByHand(store.ask, Codec(), ttl_seconds=60)


async def test_a_replaced_summary_is_the_one_in_use(client: Client, by_hand: RedisByHand) -> None:
    """From the next recall on, and there is still one of that prefix."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    first = summary_of(chain, 4, "the first")
    await client.store.keep_summary(client.tenant, conversation, chain, first)
    second = replace(first, text="the second", created_at=first.created_at + 9)
    await by_hand.replace(client.tenant, conversation, second)
    assert (await client.recall(dialogue(11))).summary == second
    assert await client.store.summaries(conversation) == [second]
    record = await client.store.conversation(conversation)
    assert record is not None
    assert (record.summary_count, record.last_summary_at) == (1, second.created_at)
    assert await client.store.keep_summary(client.tenant, conversation, chain, first) == second


async def test_what_was_prepared_upon_the_old_summary_goes(client: Client, by_hand: RedisByHand) -> None:
    """It took in the text that is replaced, so it must not come into use."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    first = summary_of(chain, 4, "the first")
    await client.store.keep_summary(client.tenant, conversation, chain, first)
    await client.store.keep_summary(client.tenant, conversation, chain, summary_of(chain, 8), waiting=True)
    assert (await client.recall(dialogue(11))).prepared is not None
    await by_hand.replace(client.tenant, conversation, replace(first, text="the second"))
    assert (await client.recall(dialogue(11))).prepared is None


async def test_a_summary_of_a_new_prefix_is_kept(client: Client, by_hand: RedisByHand) -> None:
    """Where nothing is to be replaced, it is the newest from then on; of a fork, too."""
    await client.send(dialogue(9), assistant("message 10"))
    fork = [*dialogue(8), user("otherwise")]
    conversation = await client.send(fork, assistant("so be it"))
    chain = chain_of(client.tenant, fork)
    made = summary_of(chain, 6)
    await by_hand.replace(client.tenant, conversation, made)
    assert (await client.recall([*fork, assistant("so be it"), user("and?")])).summary == made
    assert await client.store.summaries(conversation) == [made]


async def test_the_head_is_that_of_the_last_turn(client: Client, by_hand: RedisByHand) -> None:
    """Of system messages that change from turn to turn only the newest are read; inner ones are none of the head."""
    said = [system("It is noon."), *dialogue(3)]
    conversation = await client.send(said, assistant("message 4"))
    assert await by_hand.leading_system_messages(conversation) == [system("It is noon.").raw]
    said = [system("It is one."), system("Be brief."), *dialogue(4), system("Inside."), user("message 5")]
    assert await client.send(said, assistant("message 6")) == conversation
    assert await by_hand.leading_system_messages(conversation) == [system("It is one.").raw, system("Be brief.").raw]


async def test_a_conversation_without_system_messages_has_no_head(client: Client, by_hand: RedisByHand) -> None:
    """Nor has one that is not there."""
    assert await by_hand.leading_system_messages(await client.send(dialogue(3), None)) == []
    assert await by_hand.leading_system_messages("0" * 48) == []


async def test_a_fork_that_a_race_makes_has_its_own_head(client: Client, by_hand: RedisByHand) -> None:
    """Both turns go on from the same place and are told the same id; the system message had been sent already."""
    said = [system("Be brief."), *dialogue(3)]
    told = await client.send(said, assistant("message 4"))
    known = 4
    turns = [
        turn_of(
            client.tenant,
            [*said, assistant("message 4"), user(text), assistant("so be it")],
            known=known,
            conversation=told,
        )
        for text in ("go on", "otherwise")
    ]
    ids = [await client.store.record(turn) for turn in turns]
    assert ids[0] == told
    assert ids[1] != told
    for conversation, turn in zip(ids, turns, strict=True):
        assert await by_hand.leading_system_messages(conversation) == [system("Be brief.").raw]
        assert await client.read(conversation) == raws(turn.messages)
