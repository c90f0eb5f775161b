"""The first turn of a conversation is read and written by a short cut, which changes nothing but its price."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from tests.store.turns import RECIPE, Client, assistant, dialogue, raws, summary_of, system, turn_of, user
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of, conversation_id
from tidemark.core.conversation.records import TurnRecord
from tidemark.store import keys, scripts
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.lifetimes import Lifetime
from tidemark.store.turn_parts import part_turn

LUA = Path(scripts.__file__).with_name("lua")
FIRST = {
    "alone": [user("hello"), assistant("hi")],
    "without an answer": [user("hello")],
    "with system messages": [system("rules"), user("hello"), system("note"), assistant("hi")],
    "long": dialogue(2100),
}


def stored(admin: redis.Redis, family: str) -> dict[bytes, tuple[object, int]]:
    """Every key of a family, with what it holds and whether it expires; clocks of the server's left out."""
    found: dict[bytes, tuple[object, int]] = {}
    for name in admin.scan_iter(f"tm:{{{family}}}:*"):
        kind = admin.type(name)
        value: object
        if kind == b"hash":
            value = {**admin.hgetall(name), b"touched": b""}
        elif kind == b"list":
            value = admin.lrange(name, 0, -1)
        else:
            value = admin.smembers(name) if kind == b"set" else admin.get(name)
        found[name] = (value, round(admin.ttl(name), -1))
    return found


def write(admin: redis.Redis, turn: TurnRecord, lasting: Lifetime, *parts: str) -> None:
    """Record a turn by these parts of the script."""
    source = "".join((LUA / f"{part}.lua").read_text("utf-8") for part in ("facts", "answered", "several", *parts))
    given = scripts.record_arguments(
        turn,
        part_turn(turn, turn.stored_count),
        scripts.moment(turn.created_at),
        codec=Codec(),
        skip=turn.stored_count,
        lifetime=lasting,
        stored_systems=(),
    )
    admin.eval(source, 1, keys.family_prefix(turn.chain.family), *given)


@pytest.mark.parametrize(
    "lasting", [Lifetime(0), Lifetime(3600), Lifetime(3600, 0, 7200)], ids=["ever", "hour", "model"]
)
@pytest.mark.parametrize("sender", ["", "chat a-program/1.0"], ids=["imported", "sent"])
@pytest.mark.parametrize("said", FIRST.values(), ids=FIRST)
def test_the_short_cut_writes_what_the_whole_way_writes(
    admin: redis.Redis, tenant: str, said: Sequence[Message], lasting: Lifetime, sender: str
) -> None:
    """Key by key and byte by byte, with the same time to live."""
    turn = replace(turn_of(tenant, said, created_at=1.5), sender=sender)
    write(admin, turn, lasting, "record_first", "tree", "record")
    short = stored(admin, turn.chain.family)
    assert short
    admin.delete(*short)
    write(admin, turn, lasting, "tree", "record")
    assert stored(admin, turn.chain.family) == short


def test_a_reply_to_rules_alone_is_found_by_its_first_message_as_well(admin: redis.Redis, tenant: str) -> None:
    """The id that is told for a request of system messages alone is no message's; that of the reply leads to it."""
    asked, reply = [system("rules")], assistant("understood")
    began = chain_of(tenant, asked)
    turn = turn_of(tenant, [*asked, reply], conversation=conversation_id(began, 0), created_at=1.5)
    turn = replace(turn, chain=began.extended([reply]))
    write(admin, turn, Lifetime(3600), "record_first", "tree", "record")
    short = stored(admin, turn.chain.family)
    assert f"tm:{{{turn.chain.family}}}:a:{turn.chain.at(1).hex()[:16]}".encode() in short
    admin.delete(*short)
    write(admin, turn, Lifetime(3600), "tree", "record")
    assert stored(admin, turn.chain.family) == short


@pytest.mark.parametrize("kind", "xcahmtyrqb")
async def test_where_anything_is_left_the_whole_way_is_taken(
    alone: RedisStore, admin: redis.Redis, tenant: str, kind: str
) -> None:
    """Of a conversation that lost its parts, one that was forgotten, or an id that leads elsewhere."""
    turn = replace(turn_of(tenant, FIRST["with system messages"]), created_at=time.time())
    lasting, family, own = Lifetime(3600), turn.chain.family, turn.conversation[32:]
    left = f"tm:{{{family}}}:{kind}:{own}"

    def leave() -> None:
        admin.delete(*admin.scan_iter(f"tm:{{{family}}}:*"), "-")
        if kind == "c":
            admin.hset(left, "summaries", 1)
        elif kind == "y":
            admin.hset(left, "digest", "a system message")
        elif kind == "b":
            admin.rpush(f"tm:{{{family}}}:q:{own}", b"\0\0\0\1" + bytes(24))
            admin.sadd(left, "0" * 16)
        elif kind in "xah":
            admin.set(left, 1)
        else:
            admin.rpush(left, b"\0\0\0\1" + bytes(24))

    leave()
    write(admin, turn, lasting, "tree", "record")
    whole = stored(admin, family)
    leave()
    write(admin, turn, lasting, "record_first", "tree", "record")
    assert stored(admin, family) == whole


async def test_a_first_message_that_was_sent_before_is_known(client: Client) -> None:
    """By where its request ended, by its conversation, or by the id that was told for it."""
    await client.send([user("one")], None)
    assert (await client.recall([user("one")])).stored_count == 1
    await client.send([user("two"), assistant("well"), user("three")], assistant("so"))
    assert (await client.recall([user("two")])).stored_count == 1


async def test_a_named_conversations_first_message_is_known(store: RedisStore, tenant: str) -> None:
    """Its family is called otherwise than the conversation that begins in it."""
    said = [user("one"), assistant("two"), user("three"), assistant("four")]
    chain = chain_of(tenant, said, conversation="mine")
    turn = turn_of(tenant, said, conversation=chain.family + chain.at(1).hex()[:16])
    await store.record(replace(turn, chain=chain, name="mine"))
    memory = await store.recall(chain_of(tenant, said[:1], conversation="mine"), RECIPE)
    assert (memory.conversation, memory.stored_count, memory.diverges) == (turn.conversation, 1, True)


async def test_a_summary_of_a_beginning_without_a_turn_is_found(client: Client) -> None:
    """Its turn never came to its end; the next request finds it, and so does its record."""
    said = dialogue(3)
    chain = chain_of(client.tenant, said)
    told = chain.family + chain.at(1).hex()[:16]
    kept = await client.store.keep_summary(client.tenant, told, chain, summary_of(chain, 2))
    assert kept is not None
    assert (await client.recall(said)).summary == kept
    conversation = await client.send(said, assistant("done"))
    assert conversation == told
    record = await client.store.conversation(conversation)
    assert record is not None
    assert (record.summary_count, record.message_count) == (1, 4)
    assert await client.read(conversation) == raws([*said, assistant("done")])


async def test_a_first_turn_is_few_commands(alone: RedisStore, admin: redis.Redis) -> None:
    """What the server does for it grows with nothing; a limit on what a change may add."""
    client = Client(alone, uuid.uuid4().hex)
    await client.send([user("warm")], assistant("up"))
    await alone.listing.settle()
    admin.config_resetstat()
    await client.send([user("hello")], assistant("hi"))
    counts = {name.removeprefix("cmdstat_"): told["calls"] for name, told in admin.info("commandstats").items()}
    assert counts.pop("evalsha") == 2
    for name in ("config|resetstat", "config"):  # as Redis 6.2 calls it
        counts.pop(name, None)
    assert sum(counts.values()) <= 12
