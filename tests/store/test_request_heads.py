"""The system messages that began the last request of a conversation."""

from __future__ import annotations

import pytest

from tests.store.turns import Client, assistant, dialogue, raws, system, turn_of, user
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.request_heads import RedisRequestHeads


@pytest.fixture
def heads(store: RedisStore) -> RedisRequestHeads:
    """On the store's connections."""
    return RedisRequestHeads(store.ask, Codec())


async def test_the_head_is_that_of_the_last_turn(client: Client, heads: RedisRequestHeads) -> None:
    """Of system messages that change from turn to turn only the newest are read; inner ones are none of the head."""
    said = [system("It is noon."), *dialogue(3)]
    conversation = await client.send(said, assistant("message 4"))
    assert await heads.leading_system_messages(conversation) == [system("It is noon.").raw]
    said = [system("It is one."), system("Be brief."), *dialogue(4), system("Inside."), user("message 5")]
    assert await client.send(said, assistant("message 6")) == conversation
    assert await heads.leading_system_messages(conversation) == [system("It is one.").raw, system("Be brief.").raw]


async def test_a_conversation_without_system_messages_has_no_head(client: Client, heads: RedisRequestHeads) -> None:
    """Nor has one that is not there."""
    assert await heads.leading_system_messages(await client.send(dialogue(3), None)) == []
    assert await heads.leading_system_messages("0" * 48) == []


async def test_a_fork_that_a_race_makes_has_its_own_head(client: Client, heads: RedisRequestHeads) -> None:
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
        assert await heads.leading_system_messages(conversation) == [system("Be brief.").raw]
        assert await client.read(conversation) == raws(turn.messages)
