"""Responses in the store are found by their ids and those of their items, by their owner, with their conversation."""

from __future__ import annotations

from dataclasses import replace

from tests.store.turns import assistant, system, turn_of, user
from tests.support.sealing import XorCipher
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.responses import OutputItem, ResponseRecord
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

TOOLS = b'[{"type":"function","name":"weather","description":"' + b"w" * 400 + b'"}]'
HEAD = {"id": b'"resp_1"', "object": b'"response"', "tools": TOOLS, "output": b"", "instructions": b"null"}
TALK = [system("Be brief."), user("How is the weather?"), assistant("Fine.")]


def answered(tenant: str, response_id: str = "resp_1", head: dict[str, bytes] | None = None) -> TurnRecord:
    """A turn whose response its client may ask for again."""
    turn = turn_of(tenant, TALK)
    response = ResponseRecord(
        id=response_id,
        message_count=2,
        model="small",
        created_at=1.5,
        tip=turn.chain.tip,
        systems=[(0, digest_of(TALK[0].raw))],
        head=HEAD if head is None else head,
        items=[OutputItem("reasoning", "rs_1"), OutputItem("message", "msg_1")],
    )
    return replace(turn, response=response)


async def test_a_response_is_found_by_its_id_and_by_those_of_its_items(store: RedisStore) -> None:
    """With everything but its messages, which the conversation has."""
    conversation = await store.record(answered("found"))
    for identifier in ("resp_1", "rs_1", "msg_1"):
        found = await store.responses.find("found", identifier)
        assert found is not None
        assert (found.id, found.conversation, found.message_count) == ("resp_1", conversation, 2)
    found = await store.responses.find("found", "resp_1")
    assert found is not None
    assert [item.id for item in found.items] == ["rs_1", "msg_1"]
    assert found.tip == chain_of("found", TALK).tip
    assert dict((await store.responses.with_head(found)).head) == HEAD
    assert list((await store.responses.with_head(found)).head) == list(HEAD)
    assert await store.responses.system_messages(found) == {digest_of(TALK[0].raw): TALK[0].raw}
    assert await store.responses.find("found", "resp_2") is None


async def test_nobody_finds_the_response_of_another_owner(store: RedisStore) -> None:
    """Promise 8: the same id leads each owner to their own."""
    await store.record(answered("mine"))
    assert await store.responses.find("yours", "resp_1") is None


async def test_a_long_member_is_stored_once_for_each_conversation(alone: RedisStore) -> None:
    """Every response of an agent repeats its tools."""
    conversation = await alone.record(answered("once"))
    await alone.record(answered("once", "resp_2"))
    fields = await alone.ask("HKEYS", f"tm:{{{conversation[:32]}}}:o:{conversation[32:]}")
    assert len([name for name in fields if name.startswith(b"#")]) == 1
    for identifier in ("resp_1", "resp_2"):
        found = await alone.responses.find("once", identifier)
        assert found is not None
        assert (await alone.responses.with_head(found)).head["tools"] == TOOLS


async def test_deleting_the_conversation_deletes_its_responses(store: RedisStore) -> None:
    """Nothing of them is left, and the same conversation begun again does not bring them back."""
    conversation = await store.record(answered("gone"))
    await store.forget(conversation, "gone", "", 2_000_000_000.0)
    assert await store.responses.find("gone", "resp_1") is None
    again = replace(answered("gone", "resp_2"), created_at=2_100_000_000.0)
    assert await store.record(again) == conversation
    assert await store.responses.find("gone", "resp_1") is None
    found = await store.responses.find("gone", "resp_2")
    assert found is not None
    assert (await store.responses.with_head(found)).head["tools"] == TOOLS


async def test_a_deleted_response_leaves_its_conversation(store: RedisStore) -> None:
    """``DELETE /v1/responses/{id}`` is about the response."""
    conversation = await store.record(answered("one"))
    found = await store.responses.find("one", "resp_1")
    assert found is not None
    await store.responses.forget("one", found)
    assert await store.responses.find("one", "resp_1") is None
    assert await store.responses.find("one", "msg_1") is None
    assert len(await store.messages(conversation)) == 2


async def test_responses_live_as_long_as_their_conversation(alone: RedisStore) -> None:
    """Every key of them has a lifetime."""
    conversation = await alone.record(answered("lasting"))
    family, own = conversation[:32], conversation[32:]
    whole = await alone.ask("TTL", f"tm:{{{family}}}:m:{own}")
    assert abs(await alone.ask("TTL", f"tm:{{{family}}}:o:{own}") - whole) <= 1
    leading = [keys.response("lasting", identifier) for identifier in ("resp_1", "rs_1", "msg_1")]
    assert [await alone.ask("TTL", key) > 0 for key in leading] == [True] * 3


async def test_a_cipher_seals_responses(url: str) -> None:
    """Instructions and metadata are a client's text."""
    sealing = RedisStore(url, Codec(XorCipher()), ttl_seconds=60, recall_timeout_seconds=5, record_timeout_seconds=5)
    try:
        head = {"id": b'"resp_1"', "instructions": b'"the zebra"', "output": b"", "tools": TOOLS}
        conversation = await sealing.record(answered("sealed", head=head))
        stored = await sealing.ask("HVALS", f"tm:{{{conversation[:32]}}}:o:{conversation[32:]}")
        assert stored
        assert not any(b"zebra" in value or b"weather" in value for value in stored)
        found = await sealing.responses.find("sealed", "resp_1")
        assert found is not None
        assert dict((await sealing.responses.with_head(found)).head) == head
    finally:
        await sealing.close()


async def test_a_server_that_turns_out_to_be_a_cluster_gets_each_key_apart(cluster_url: str) -> None:
    """Behind one plain address: it refuses the script that writes all of them, once."""
    plain = cluster_url.replace("redis+cluster://", "redis://")
    store = RedisStore(plain, Codec(), ttl_seconds=60, recall_timeout_seconds=5, record_timeout_seconds=5)
    try:
        for identifier in ("resp_1", "resp_2"):
            await store.record(answered("apart", identifier))
            assert await store.responses.find("apart", identifier) is not None
        assert await store.responses.find("apart", "msg_1") is not None
    finally:
        await store.close()
