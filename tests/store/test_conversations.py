"""Recall and record: what was sent is known again and stays whole, and turn 500 costs what turn 5 does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import redis

from tests.store.turns import RECIPE, Client, assistant, dialogue, listed, raws, summary_of, system, turn_of, user
from tidemark.core.conversation.prefix import chain_of, conversation_id
from tidemark.store.conversations import RedisStore


async def test_an_unknown_request_is_nothing_known(client: Client) -> None:
    """A store that never saw a conversation says so."""
    memory = await client.recall(dialogue(3))
    assert (memory.conversation, memory.stored_count, memory.diverges, memory.summary) == (None, 0, False, None)


async def test_an_unknown_long_request_is_nothing_known(client: Client) -> None:
    """Also where it takes a second look."""
    assert (await client.recall(dialogue(300))).conversation is None


async def test_a_request_without_messages_needs_no_store(client: Client) -> None:
    """A request of system messages only has no chain to ask with."""
    assert (await client.recall([system("rules")])).conversation is None


async def test_what_was_recorded_is_known(client: Client) -> None:
    """The next request goes on with the same conversation, all but its new message known."""
    said = dialogue(3)
    conversation = await client.send(said, assistant("reply"))
    memory = await client.recall([*said, assistant("reply"), user("more")])
    assert (memory.conversation, memory.stored_count, memory.diverges) == (conversation, 4, False)
    assert conversation == client.told[0] == conversation_id(chain_of(client.tenant, said), 0)


@pytest.mark.parametrize("name", ["", "one"])
@pytest.mark.parametrize("model", ["", "a\0b", "ü" * 31, "m" * 255, "m" * 256, "ü" * 40_000, "1e3"])
@pytest.mark.parametrize(("tokens", "created_at"), [(0, 0.0), (2**40, 1763806449.123456), (10**15, 1e16)])
async def test_what_a_turn_says_of_itself_is_read_back(
    client: Client, model: str, name: str, tokens: int, created_at: float
) -> None:
    """However long a text or a number is, the record has it as it was said; with and without the shorter way in."""
    turn = turn_of(client.tenant, dialogue(2), created_at=created_at)
    kept = await client.store.record(replace(turn, model=model, name=name, tokens=(tokens, 1)))
    record = await client.store.conversation(kept)
    assert record is not None
    assert (record.model, record.name, record.total_tokens) == (model, name, tokens + 1)
    assert (record.created_at, record.updated_at) == (created_at, created_at)


async def test_every_message_is_read_back(client: Client) -> None:
    """Promise 6: bytes, order, tokens and positions."""
    said = dialogue(3)
    conversation = await client.send(said, assistant("reply"))
    read = await client.store.messages(conversation)
    chain = chain_of(client.tenant, [*said, assistant("reply")])
    assert [one.raw for one in read] == raws([*said, assistant("reply")])
    assert [one.position for one in read] == [1, 2, 3, 4]
    assert [one.message_id for one in read] == [link.hex() for link in chain.hashes]
    assert [one.tokens for one in read] == [9, 9, 9, 5]


async def test_a_stretch_of_messages_is_read_back(client: Client) -> None:
    """Both ends are included, and neither has to exist."""
    conversation = await client.send(dialogue(1200), None)
    assert [one.position for one in await client.store.messages(conversation, start=3, stop=5)] == [3, 4, 5]
    assert [one.position for one in await client.store.messages(conversation, start=1199, stop=5000)] == [
        1199,
        1200,
    ]
    assert len(await client.store.messages(conversation)) == 1200


async def test_a_record_counts_what_happened(client: Client) -> None:
    """S2-6: the conversation's record."""
    said = dialogue(1)
    conversation = await client.send(said, assistant("one"))
    await client.send([*said, assistant("one"), user("two")], assistant("three"))
    record = await client.store.conversation(conversation)
    assert record is not None
    assert (record.id, record.tenant, record.model) == (conversation, client.tenant, "gpt-4o")
    assert (record.message_count, record.turn_count, record.summary_count) == (4, 2, 0)
    assert record.total_tokens == len("message 1" + "one" + "two" + "three")
    assert record.created_at < record.updated_at
    assert record.parent is None


async def test_an_unknown_id_is_no_conversation(client: Client) -> None:
    """Neither record nor messages nor summaries."""
    for unknown in ("0" * 48, "", "x", "{" * 48, f"{'0' * 32}}}:c:{'0' * 11}"):
        assert await client.store.conversation(unknown) is None
        assert await client.store.messages(unknown) == []
        assert await client.store.summaries(unknown) == []
        assert await client.store.all_turns(unknown) == []


async def test_a_turn_recorded_twice_is_recorded_once(client: Client) -> None:
    """A retry after a lost answer changes nothing."""
    first = turn_of(client.tenant, dialogue(4))
    second = turn_of(client.tenant, dialogue(6), known=4, conversation=first.conversation)
    for turn in (first, first, second, second, first):
        assert await client.store.record(turn) == first.conversation
    assert await client.read(first.conversation) == raws(dialogue(6))
    record = await client.store.conversation(first.conversation)
    assert record is not None
    assert (record.message_count, record.turn_count) == (6, 2)


async def test_an_incomplete_turn_keeps_its_request(client: Client) -> None:
    """The reply broke off: the messages that were sent are there, and the retry goes on with them."""
    said = dialogue(3)
    conversation = await client.send(said, None)
    memory = await client.recall(said)
    assert (memory.conversation, memory.stored_count, memory.diverges) == (conversation, 3, False)
    assert await client.send(said, assistant("at last")) == conversation
    assert [one.complete for one in await client.store.all_turns(conversation)] == [False, True]


async def test_a_turn_that_the_store_never_saw_is_made_up_for(client: Client) -> None:
    """The store was down for two turns; the next one brings what is missing."""
    conversation = await client.send(dialogue(1), assistant("message 2"))
    await client.send(dialogue(7), assistant("message 8"))
    assert await client.read(conversation) == raws(dialogue(8))


async def test_a_turn_is_kept_whole_when_what_was_known_is_gone(client: Client) -> None:
    """Expired or flushed between recall and record: the whole request is written."""
    turn = turn_of(client.tenant, [system("rules"), *dialogue(8)], known=6)
    conversation = await client.store.record(turn)
    assert await client.read(conversation) == raws(dialogue(8))


async def test_tenants_share_nothing(store: RedisStore, tenant: str) -> None:
    """Promise 8: the same words of another tenant are unknown."""
    one, other = Client(store, tenant + "01"), Client(store, tenant + "02")
    conversation = await one.send(dialogue(3), assistant("reply"))
    assert (await other.recall(dialogue(3))).conversation is None
    assert await other.send(dialogue(3), assistant("reply")) != conversation
    assert conversation in await listed(store, tenant + "01")
    assert conversation not in await listed(store, tenant + "02")


async def test_two_conversations_with_one_opening_part(client: Client) -> None:
    """They are one family until they differ, and each reads back whole."""
    opening = dialogue(4, "opening")
    one, other = [*opening, user("left")], [*opening, user("right")]
    first, second = await client.send(one, assistant("l")), await client.send(other, assistant("r"))
    assert first != second
    assert await client.read(first) == raws([*one, assistant("l")])
    assert await client.read(second) == raws([*other, assistant("r")])


async def test_system_messages_are_kept_once(client: Client) -> None:
    """They are no part of the chain, yet nothing that was sent is lost."""
    said = [system("rules"), user("a"), system("note"), user("b")]
    conversation = await client.send(said, assistant("c"))
    await client.send([system("other rules"), *said[1:], assistant("c"), user("d")], assistant("e"))
    kept = await client.store.system_messages(conversation)
    assert set(kept.values()) == {system(text).raw for text in ("rules", "note", "other rules")}
    first, second = await client.store.all_turns(conversation)
    assert [(place, kept[digest]) for place, digest in first.systems] == [(0, said[0].raw), (1, said[2].raw)]
    assert [(place, kept[digest]) for place, digest in second.systems] == [(0, system("other rules").raw)]


async def test_a_turn_leaves_a_trace(client: Client) -> None:
    """What was covered and what was done can be told later."""
    conversation = await client.send(dialogue(3), assistant("reply"))
    (turn,) = await client.store.all_turns(conversation)
    assert (turn.first, turn.last, turn.action, turn.complete) == (1, 4, "none", True)
    assert (turn.tokens_before, turn.tokens_after, turn.summarized) == (100, 50, 3)
    assert turn.usage == {"prompt_tokens": 90}


async def test_conversations_are_listed_by_last_use(client: Client) -> None:
    """For the console: the newest first."""
    first = await client.send([user("x")], assistant("y"))
    second = await client.send([user("p")], assistant("q"))
    assert await listed(client.store, client.tenant) == [second, first]
    await client.send([user("x"), assistant("y"), user("z")], assistant("!"))
    assert await listed(client.store, client.tenant) == [first, second]
    assert await listed(client.store, client.tenant, limit=1) == [first]


async def test_nothing_is_kept_for_good(alone: RedisStore, admin: redis.Redis, tenant: str) -> None:
    """Every key of a conversation has a time to live."""
    conversation = await Client(alone, tenant).send([system("s"), *dialogue(3)], assistant("reply"))
    await alone.listing.settle()
    names = [*admin.scan_iter(f"tm:{{{conversation[:32]}}}:*"), f"tm:i:{tenant}"]
    assert len(names) == 8
    assert all(0 < admin.ttl(name) <= 30 * 86_400 for name in names)


async def test_what_a_conversation_rests_on_is_kept_as_long(alone: RedisStore, admin: redis.Redis, tenant: str) -> None:
    """A fork in use keeps its parent's messages and its summaries; it looks after them daily."""
    client = Client(alone, tenant)
    parent = await client.send(dialogue(5), assistant("reply"))
    chain = chain_of(tenant, dialogue(5))
    await alone.keep_summary(tenant, parent, chain, summary_of(chain, 2))
    edited = [*dialogue(4), user("edited")]
    fork = await client.send(edited, assistant("a"))
    family, own = fork[:32], fork[32:]
    rests = [
        *admin.scan_iter(f"tm:{{{family}}}:[chmty]:{parent[32:]}"),
        *admin.scan_iter(f"tm:{{{family}}}:s:*"),
    ]
    assert len(rests) == 5
    for name in rests:
        admin.expire(name, 100)
    await client.send([*edited, assistant("a"), user("b")], assistant("c"))
    assert all(admin.ttl(name) <= 100 for name in rests)
    admin.hincrby(f"tm:{{{family}}}:c:{own}", "touched", -90_000)
    await client.send([*edited, assistant("a"), user("b"), assistant("c"), user("d")], assistant("e"))
    assert all(admin.ttl(name) > 100 for name in rests)


async def test_a_known_conversation_is_recalled_in_one_round_trip(
    alone: RedisStore, admin: redis.Redis, tenant: str
) -> None:
    """NFR: one command before forwarding and one at the end, however long the conversation is."""
    client = Client(alone, tenant)
    await client.send(dialogue(499), assistant("message 500"))
    admin.config_resetstat()
    memory = await client.recall(dialogue(501))
    assert memory.stored_count == 500
    await client.finish(dialogue(501), assistant("message 502"), memory)
    told = admin.info("commandstats")
    assert told["cmdstat_evalsha"]["calls"] == 2  # what is used is counted by another script, once a second


async def test_a_turn_costs_the_same_however_long_the_conversation(
    alone: RedisStore, admin: redis.Redis, tenant: str
) -> None:
    """Bytes sent and bytes written grow with the new messages only."""
    client = Client(alone, tenant)
    sent: list[int] = []
    written: list[int] = []
    for count in (*range(1, 12, 2), *range(99, 900, 100), *range(985, 1000, 2)):
        said = [system("the same rules each time " * 20), *dialogue(count, "words " * 50)]
        memory = await client.recall(said)
        before = admin.info("stats")["total_net_input_bytes"], admin.info("persistence")["aof_current_size"]
        await client.finish(said, assistant("words " * 50 + f" {count + 1}"), memory)
        after = admin.info("stats")["total_net_input_bytes"], admin.info("persistence")["aof_current_size"]
        sent.append(after[0] - before[0])
        written.append(after[1] - before[1])
    # Of eight turns the cheapest one: once a second the store also gets lists and usage, whoever is measured.
    assert min(sent[-8:]) <= min(sent[3:6]) + 64 * 16 + 64  # a bounded piece of the chain
    # A write that waits for the disk counts with the turn after it, so that a turn may have none of its own.
    assert min(filter(None, written[-8:])) <= min(filter(None, written[3:6])) * 1.05


async def test_a_named_conversation_is_a_family_of_its_own(store: RedisStore, tenant: str) -> None:
    """A client's own name keeps equal openings apart."""
    named = chain_of(tenant, dialogue(2), conversation="mine")
    turn = turn_of(tenant, dialogue(2))
    conversation = await store.record(replace(turn, chain=named, conversation=conversation_id(named, 0)))
    assert conversation.startswith(named.family)
    assert (await store.recall(named, RECIPE)).conversation == conversation
    assert (await store.recall(turn.chain, RECIPE)).conversation is None
