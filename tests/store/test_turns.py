"""Turns of stored history, lists, lifetimes and forgetting, on one server and on a cluster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from tests.store.turns import RECIPE, Client, assistant, dialogue, listed, summary_of, system, turn_of, user
from tests.support.waiting import settled
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of, conversation_id
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.errors import StoreError, SummaryOutdated
from tidemark.core.ports import Lease, StartedTurn
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.leases import RedisLeases
from tidemark.store.lifetimes import Lifetime, Lifetimes
from tidemark.store.listing import Listing, Used

NAME = "a name"


def family(tenant: str) -> str:
    """Of the conversation that the client calls by its name."""
    return chain_of(tenant, (), conversation=NAME).family


async def begin_turn(store: RedisStore, tenant: str, own: str = "") -> StartedTurn:
    """A turn of it."""
    found = await store.turns.start_turn(family(tenant), own, tenant, 10)
    assert found is not None
    return found


def turn_record(tenant: str, said: list[Message], known: int, turn: StartedTurn) -> TurnRecord:
    """The record of such a turn."""
    chain = chain_of(tenant, said, conversation=NAME)
    assert turn.lease is not None
    made = turn_of(tenant, said, known=known, conversation=conversation_id(chain, 0))
    return replace(
        made,
        chain=chain,
        name=NAME,
        base_branch=turn.branch,
        lease_name=turn.lease.name,
        lease_value=turn.lease.value,
        created_at=time.time(),
    )


async def test_a_turn_is_one_requests_until_it_is_recorded(store: RedisStore, tenant: str) -> None:
    """The second sees that it is taken; afterwards it finds the conversation."""
    first = await begin_turn(store, tenant)
    assert (first.record, first.branch) == (None, "")
    assert (await begin_turn(store, tenant)).lease is None
    said = [user("one"), assistant("two")]
    id_ = await store.record(turn_record(tenant, said, 0, first))
    second = await begin_turn(store, tenant)
    assert second.lease is not None
    assert second.record is not None
    assert (second.record.id, second.record.name, second.record.message_count) == (id_, NAME, 2)


async def test_a_turn_can_be_given_back(store: RedisStore, tenant: str) -> None:
    """Where nothing came of it."""
    first = await begin_turn(store, tenant)
    assert first.lease is not None
    await RedisLeases(store.ask).release(first.lease)
    assert (await begin_turn(store, tenant)).lease is not None


async def test_another_tenants_turn_cannot_be_taken(store: RedisStore, tenant: str) -> None:
    """Nor held up: no lease is taken."""
    id_ = await store.record(turn_record(tenant, [user("one")], 0, await begin_turn(store, tenant)))
    assert await store.turns.start_turn(family(tenant), id_[32:], "somebody else", 10) is None
    assert await store.turns.start_turn(family(tenant), "0" * 16, tenant, 10) is None
    assert (await begin_turn(store, tenant, id_[32:])).lease is not None


async def test_a_turn_whose_lease_was_lost_becomes_a_fork(store: RedisStore, tenant: str) -> None:
    """It comes in between nobody's messages, and the name does not lead to it; but it is kept."""
    said = [user("one"), assistant("two")]
    id_ = await store.record(turn_record(tenant, said, 0, await begin_turn(store, tenant)))
    slow = await begin_turn(store, tenant)
    assert slow.lease is not None
    await RedisLeases(store.ask).release(slow.lease)  # as if it had expired
    quick = await begin_turn(store, tenant)
    late = await store.record(turn_record(tenant, [*said, user("late"), assistant("answer")], 2, slow))
    assert late != id_
    assert (await begin_turn(store, tenant)).lease is None, "the other's turn is still its own"
    assert await store.record(turn_record(tenant, [*said, user("quick"), assistant("answer")], 2, quick)) == id_
    head = await begin_turn(store, tenant)
    assert head.record is not None
    assert (head.record.id, head.record.message_count) == (id_, 4)
    assert [one.raw for one in await store.messages(late)][2:] == [user("late").raw, assistant("answer").raw]


async def test_a_turn_that_comes_after_another_one_leaves_it_the_name(store: RedisStore, tenant: str) -> None:
    """Its lease had run out, and the other turn is stored already: the name leads to what was answered first."""
    said = [user("one"), assistant("two")]
    id_ = await store.record(turn_record(tenant, said, 0, await begin_turn(store, tenant)))
    slow = await begin_turn(store, tenant)
    assert slow.lease is not None
    await RedisLeases(store.ask).release(slow.lease)  # as if it had expired
    quick = turn_record(tenant, [*said, user("quick"), assistant("answer")], 2, await begin_turn(store, tenant))
    assert await store.record(quick) == id_
    late = await store.record(turn_record(tenant, [*said, user("late"), assistant("answer")], 2, slow))
    head = await begin_turn(store, tenant)
    assert head.record is not None
    assert (head.record.id, head.record.message_count) == (id_, 4)
    assert [one.raw for one in await store.messages(late)][2:] == [user("late").raw, assistant("answer").raw]


async def test_an_asked_again_turn_leads_the_name(store: RedisStore, tenant: str) -> None:
    """Its answer was lost on the way to the client: another one takes its place."""
    said = [user("one"), assistant("two")]
    id_ = await store.record(turn_record(tenant, said, 0, await begin_turn(store, tenant)))
    other = turn_record(tenant, [user("one"), assistant("other")], 1, await begin_turn(store, tenant))
    again = await store.record(other)
    assert again != id_
    head = await begin_turn(store, tenant)
    assert head.record is not None
    assert head.record.id == again


async def test_an_id_that_was_only_told_goes_with_its_conversation(store: RedisStore, tenant: str) -> None:
    """No key of a forgotten conversation is left but the two that keep turns under way out, and they expire."""
    turn = turn_record(tenant, [user("one"), assistant("two")], 0, await begin_turn(store, tenant))
    id_ = await store.record(turn)
    await store.record(replace(turn, conversation=id_[:32] + "f" * 16, lease_name="", lease_value=b"", base_branch=""))
    assert await store.conversation(id_[:32] + "f" * 16) is not None
    await store.forget(id_, tenant, NAME, time.time())
    kinds = "chmtyraqblned"
    parts = [f"tm:{{{id_[:32]}}}:{kind}:{own}" for kind in kinds for own in (id_[32:], "f" * 16)]
    assert [part for part in parts if await store.ask("EXISTS", part)] == []


async def test_a_conversation_of_before_there_were_lists_is_wholly_forgotten(store: RedisStore, tenant: str) -> None:
    """It has no owner; with its next turn it gets one, so that name and place in the list go with it."""
    first = turn_record(tenant, [user("one"), assistant("two")], 0, await begin_turn(store, tenant))
    id_ = await store.record(first)
    await store.ask("HDEL", f"tm:{{{id_[:32]}}}:c:{id_[32:]}", "owner", "name")
    said = [user("one"), assistant("two"), user("three")]
    await store.record(replace(turn_record(tenant, said, 2, await begin_turn(store, tenant)), owner="its credential"))
    record = await store.conversation(id_)
    assert record is not None
    assert (record.owner, record.name) == ("its credential", NAME)


async def test_a_turn_after_an_expired_lease_is_appended_where_nobody_came(store: RedisStore, tenant: str) -> None:
    """What counts is that the conversation still ends where the turn began."""
    first = await begin_turn(store, tenant)
    assert first.lease is not None
    await RedisLeases(store.ask).release(first.lease)
    id_ = await store.record(turn_record(tenant, [user("one")], 0, first))
    assert (await begin_turn(store, tenant, id_[32:])).lease is not None


async def test_nothing_is_left_of_what_was_forgotten(store: RedisStore, tenant: str) -> None:
    """Messages, system messages, turns, summaries in use and waiting, name and place in the lists."""
    said = [system("rules"), *dialogue(8)]
    turn = turn_record(tenant, said, 0, await begin_turn(store, tenant))
    id_ = await store.record(turn)
    chain = turn.chain
    await store.keep_summary(tenant, id_, chain, summary_of(chain, 4))
    await store.keep_summary(tenant, id_, chain, summary_of(chain, 6), waiting=True)
    assert await store.find_by_name(tenant, NAME) == id_
    assert await store.forget(id_, tenant, NAME, time.time())
    assert await store.conversation(id_) is None
    assert await store.messages(id_) == []
    assert await store.summaries(id_) == []
    assert await store.system_messages(id_) == {}
    assert await listed(store, tenant) == []
    assert await store.find_by_name(tenant, NAME) is None
    assert (await store.recall(chain, RECIPE)).stored_count == 0
    assert await store.summary(chain, 4, RECIPE) is None
    assert await store.summary(chain, 6, RECIPE, waiting=True) is None
    assert not await store.forget(id_, tenant, NAME, time.time())


async def test_a_turn_under_way_does_not_bring_back_what_was_forgotten(store: RedisStore, tenant: str) -> None:
    """Neither its write at the end, nor a summary that was being made; a later request begins anew."""
    said = [user("one"), assistant("two")]
    id_ = await store.record(turn_record(tenant, said, 0, await begin_turn(store, tenant)))
    under_way = turn_record(tenant, [*said, user("three"), assistant("four")], 2, await begin_turn(store, tenant))
    await store.forget(id_, tenant, NAME, time.time() + 1)
    with pytest.raises(StoreError):
        await store.record(under_way)
    made = summary_of(under_way.chain, 2)
    with pytest.raises(SummaryOutdated):
        await store.keep_summary(tenant, id_, under_way.chain, made)
    assert await store.conversation(id_) is None
    fresh = replace(turn_record(tenant, [user("one")], 0, await begin_turn(store, tenant)), created_at=time.time() + 2)
    again = await store.record(fresh)
    record = await store.conversation(again)
    assert record is not None
    assert record.message_count == 1


async def test_a_summary_of_what_others_rest_on_stays(client: Client) -> None:
    """A fork goes on with the summary of its beginning; that of the forgotten part goes."""
    store, said = client.store, dialogue(8)
    trunk = await client.send(said[:7], said[7])
    chain = chain_of(client.tenant, said)
    shared, own = summary_of(chain, 4), summary_of(chain, 7)
    await store.keep_summary(client.tenant, trunk, chain, shared)
    await store.keep_summary(client.tenant, trunk, chain, own)
    fork = await client.send([*said[:5], user("otherwise")], assistant("so"))
    assert fork != trunk
    await store.forget(trunk, client.tenant, "", time.time())
    assert await store.conversation(trunk) is None
    assert await store.summaries(fork) == [shared]
    assert await store.summary(chain, 7, RECIPE) is None
    assert len(await client.read(fork)) == 8 - 1
    await store.forget(fork, client.tenant, "", time.time())
    assert await store.summary(chain, 4, RECIPE) is None
    assert (await client.recall(said)).stored_count == 0


async def test_the_lists_are_written_off_the_road_and_heal(store: RedisStore, tenant: str) -> None:
    """A list that was lost has the conversation again after its next turn, once it is written anew."""
    client = Client(store, tenant)
    said = dialogue(3)
    id_ = await client.send(said, assistant("reply"))
    assert await listed(store, tenant) == [id_]
    await store.ask("DEL", f"tm:i:{tenant}")
    assert await listed(store, tenant) == []
    await client.send([*said, assistant("reply"), user("more")], assistant("again"))
    assert await listed(store, tenant) == [id_]


async def test_who_asks_for_a_list_and_goes_takes_no_entry_along() -> None:
    """What is being written is written, whoever waited for it."""
    done: list[object] = []
    go_on = asyncio.Event()

    async def ask(*command: object) -> list[object]:
        await go_on.wait()
        done.append(command[3])
        return []

    listing = Listing(ask, 0)
    listing.note(Used("owner", "conversation", "", "1.0", 0))
    reader = asyncio.create_task(listing.newest("owner", 5))
    await settled()
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    go_on.set()
    await listing.settle()
    assert done == [keys.owner_index("owner"), keys.everybodys_index()]


async def test_a_tenants_own_lifetimes_hold(url: str, tenant: str) -> None:
    """The idle time after each use; the age from the first message on, however much it is used."""
    own = Lifetimes(Lifetime(86_400), {tenant: Lifetime(1000, 3000)})
    store = RedisStore(
        url, Codec(), ttl_seconds=None, lifetimes=own, record_timeout_seconds=5, recall_timeout_seconds=5
    )
    began = time.time()
    said = dialogue(2)
    first = replace(turn_of(tenant, said), created_at=began)
    id_ = await store.record(first)
    part = f"tm:{{{id_[:32]}}}:m:{id_[32:]}"
    assert 990 < await store.ask("TTL", part) <= 1000
    late = replace(turn_of(tenant, [user("x"), *said]), created_at=began - 2500)
    old = await store.record(late)
    assert 490 <= await store.ask("TTL", f"tm:{{{old[:32]}}}:m:{old[32:]}") <= 501
    chain = late.chain
    await store.keep_summary(tenant, old, chain, summary_of(chain, 1))
    assert await store.ask("TTL", f"tm:{{{old[:32]}}}:r:{old[32:]}") <= 501
    other = await store.record(replace(turn_of("another", said), created_at=began))
    assert await store.ask("TTL", f"tm:{{{other[:32]}}}:m:{other[32:]}") > 80_000
    await store.close()


async def test_two_stores_never_hold_one_turn(store: RedisStore, url: str, tenant: str) -> None:
    """Twenty at once, over two connections: one of them."""
    other = RedisStore(
        url,
        Codec(),
        ttl_seconds=100,
        record_timeout_seconds=5,
    )
    turns = await asyncio.gather(*(begin_turn(one, tenant) for one in [store, other] * 10))
    leases: list[Lease] = [turn.lease for turn in turns if turn.lease is not None]
    assert len(leases) == 1
    await other.close()


async def test_what_others_rest_on_can_be_gone_on_with(client: Client) -> None:
    """It is a conversation again then, with its system messages, which are sent once more."""
    store, rules, said = client.store, system("rules"), dialogue(4)
    trunk = await client.send([rules, *said[:3]], said[3])
    await client.send([rules, *said[:2], user("otherwise")], assistant("so"))
    await store.forget(trunk, client.tenant, "", 0.0)
    assert await store.conversation(trunk) is None
    again = await client.send([rules, *said[:2], user("anew")], assistant("well"))
    record = await store.conversation(again)
    assert record is not None
    assert record.message_count == 4
    assert rules.raw in (await store.system_messages(again)).values()


async def test_a_turn_is_kept_where_the_store_was_emptied_meanwhile(store: RedisStore, tenant: str) -> None:
    """All of its messages are at hand, so nothing is lost; that is no forgetting."""
    said = [user("one"), assistant("two")]
    id_ = await store.record(turn_record(tenant, said, 0, await begin_turn(store, tenant)))
    turn = turn_record(tenant, [*said, user("three"), assistant("four")], 2, await begin_turn(store, tenant))
    for kind in ("c", "h", "m"):
        await store.ask("DEL", f"tm:{{{id_[:32]}}}:{kind}:{id_[32:]}")
    assert len(await store.messages(await store.record(turn))) == 4


async def test_a_turn_that_is_written_twice_changes_nothing(store: RedisStore, tenant: str) -> None:
    """The second time by itself, after its client left, while another turn is under way already."""
    turn = turn_record(tenant, [user("one"), assistant("two")], 0, await begin_turn(store, tenant))
    id_ = await store.record(turn)
    other = await begin_turn(store, tenant)
    assert await store.record(turn) == id_
    assert (await begin_turn(store, tenant)).lease is None, "the other's turn is not given back"
    more = turn_record(tenant, [user("one"), assistant("two"), user("three")], 2, other)
    assert await store.record(more) == id_
    record = await store.conversation(id_)
    assert record is not None
    assert (record.message_count, record.turn_count) == (3, 2)


async def test_what_is_known_of_forks_is_not_kept_for_good(store: RedisStore, tenant: str) -> None:
    """No key of a family is without a time to live, but the number of its last lease."""
    client, said = Client(store, tenant), dialogue(4)
    trunk = await client.send(said[:3], said[3])
    await client.send([*said[:2], user("otherwise")], assistant("so"))
    assert 0 < await store.ask("TTL", f"tm:{{{trunk[:32]}}}:b:{trunk[32:]}") <= 30 * 86_400
    name = await store.record(turn_record(tenant, said, 0, await begin_turn(store, tenant)))
    assert 0 < await store.ask("TTL", f"tm:{{{name[:32]}}}:d") <= 30 * 86_400


async def test_a_turn_of_megabytes_and_one_of_thousands_of_messages_are_stored_as_any_other(
    store: RedisStore, tenant: str
) -> None:
    """They are packed in a thread; what comes after them goes on from there."""
    for said in ([user("long " + "word " * 300_000), assistant("Noted.")], dialogue(1_200)):
        client = Client(store, tenant)
        conversation = await client.send(said[:-1], said[-1])
        kept = await store.messages(conversation)
        assert [one.raw for one in kept] == [one.raw for one in said]
        assert await client.send([*said, user("more")], assistant("yes")) == conversation
        assert len(await store.messages(conversation)) == len(said) + 2
