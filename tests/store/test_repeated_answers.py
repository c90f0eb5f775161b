"""A client that repeats answers in other words goes on with its conversation; everything else stays a fork."""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.conftest import keys_of
from tests.store.turns import (
    Client,
    assistant,
    dialogue,
    listed,
    raws,
    summary_of,
    turn_of,
    user,
)
from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of, split_id
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey

pytestmark = pytest.mark.anyio
ANSWER = "The ferry leaves at seven, and the one after it at nine, if the tide allows it: number"


def answer(number: int | str) -> Message:
    """An answer as the model gave it."""
    return assistant(f"<think>what of {number}</think>{ANSWER} {number}")


def echo(number: int | str) -> Message:
    """The same answer as the client repeats it."""
    return assistant(f"{ANSWER} {number}")


async def test_fourteen_turns_are_one_conversation(client: Client) -> None:
    """The client's wording is stored, one entry is listed, and every original stays readable."""
    said: list[Message] = []
    ids = set()
    for number in range(14):
        said += [user(f"question {number}")]
        ids.add(await client.go_on(said, answer(number)))
        said += [echo(number)]
    (conversation,) = ids
    assert set(client.told) == ids
    assert await client.read(conversation) == raws([*said[:-1], answer(13)])
    assert await listed(client.store, client.tenant) == [conversation]
    originals = await client.store.originals(conversation)
    assert {position: one.raw for position, one in originals.items()} == {
        2 * number + 2: answer(number).raw for number in range(13)
    }
    record = await client.store.conversation(conversation)
    assert record is not None
    assert (record.message_count, record.turn_count, record.parent) == (28, 14, None)


async def scripts_run(client: Client) -> int:
    """How many scripts the server has run."""
    stats = await client.store.ask("INFO", "commandstats")
    lines = stats.decode().splitlines() if isinstance(stats, bytes) else [f"cmdstat_{k}:{v}" for k, v in stats.items()]
    return sum(int(re.findall(r"calls['=: ]+(\d+)", line)[0]) for line in lines if "evalsha" in line)


async def test_a_normal_turn_does_not_look_twice(client: Client) -> None:
    """One round trip tells that nothing was changed, or that a question was; a changed answer takes a second one."""
    await client.go_on([user("a")], answer(1))
    await client.go_on([user("a"), echo(1), user("b")], answer(2))
    looks = {
        1: [
            [user("a"), echo(1), user("b"), answer(2), user("c")],
            [user("a"), echo(1), user("other")],
            [user("a")],
            [user("new")],
        ],
        2: [[user("a"), echo(1), user("b"), echo(2), user("c")]],
    }
    for trips, requests in looks.items():
        for said in requests:
            before = await scripts_run(client)
            await client.identify(said)
            assert await scripts_run(client) - before == trips


async def test_an_answer_that_is_echoed_otherwise_each_time_keeps_its_first_wording(client: Client) -> None:
    """A footer with a clock changes with every request."""
    conversation = await client.go_on([user("a")], assistant(ANSWER))
    for clock in range(3):
        said = [user("a"), assistant(f"{ANSWER} at {clock}")]
        for turn in range(clock + 1):
            said += [user(f"q{turn}"), assistant(f"{ANSWER} {turn} at {clock}")]
        assert await client.go_on(said[:-1], assistant(f"{ANSWER} {clock}")) == conversation
    assert (await client.store.originals(conversation))[2].raw == assistant(ANSWER).raw
    assert await listed(client.store, client.tenant) == [conversation]


async def test_all_answers_may_change_at_once(client: Client) -> None:
    """A client that begins to shorten its answers in the middle of a conversation keeps it."""
    said: list[Message] = []
    conversation = ""
    for number in range(5):
        said += [user(f"question {number}")]
        conversation = await client.go_on(said, answer(number))
        said += [answer(number)]
    changed = [echo(place // 2) if place % 2 else one for place, one in enumerate(said)]
    assert await client.go_on([*changed, user("on")], answer(5)) == conversation
    assert await client.read(conversation) == raws([*changed, user("on"), answer(5)])
    assert sorted(await client.store.originals(conversation)) == [2, 4, 6, 8, 10]


OPENING = "We are four people with bicycles and would like to see both islands in one day. How do we get there?"
"""A question that nobody else asks by chance."""


def prose(seed: int | str) -> Message:
    """An answer that is like no other."""
    return assistant(" ".join(uuid.uuid5(uuid.NAMESPACE_OID, f"{seed} {word}").hex[:7] for word in range(30)))


async def rewrite_answers(client: Client, opening: str) -> set[str]:
    """Fourteen turns of a client that translates every answer."""
    said = [user(opening)]
    ids = set()
    for number in range(14):
        ids.add(await client.go_on(said, prose(number)))
        said += [prose(f"{number} in other words"), user(f"and {number}?")]
    return ids


async def test_a_client_that_translates_every_answer_keeps_its_conversation(client: Client) -> None:
    """One answer is stored, and the questions tell the talk."""
    (conversation,) = await rewrite_answers(client, OPENING)
    assert await listed(client.store, client.tenant) == [conversation]
    originals = await client.store.originals(conversation)
    assert {position: one.raw for position, one in originals.items()} == {
        2 * number + 2: prose(number).raw for number in range(13)
    }


async def test_after_a_greeting_the_first_translated_answer_tells_the_talk(client: Client) -> None:
    """Anybody may have said it and been answered elsewhere, so the second turn is a conversation of its own."""
    assert len(await rewrite_answers(client, "hi")) == 2


async def test_an_unlike_answer_is_a_fork_where_another_one_is_stored(client: Client) -> None:
    """It may be meant by either, or by none: the question was asked twice. Also where one of both has gone on."""
    opening = user(OPENING)
    first = await client.go_on([opening], prose(1))
    second = await client.go_on([opening], prose(2))
    third = await client.go_on([opening, prose("elsewhere"), user("b")], prose(3))
    assert len({first, second, third}) == 3
    await client.go_on([opening, prose(1), user("c")], prose(4))
    assert (await client.identify([opening, prose("abroad"), user("d")])).echo is None


async def test_an_unlike_answer_is_a_fork_where_a_question_was_broken_off(client: Client) -> None:
    """The client may have seen the beginning of an answer that is not stored."""
    opening = user(OPENING)
    await client.go_on([opening], prose(1))
    await client.go_on([opening], None)
    assert (await client.identify([opening, prose("broken off"), user("b")])).echo is None


async def test_an_unlike_answer_is_a_fork_where_the_conversation_has_gone_on(client: Client) -> None:
    """The request lacks what it was asked with."""
    opening = user(OPENING)
    await client.go_on([opening], prose(1))
    await client.go_on([opening, prose(1), user("b")], prose(2))
    assert (await client.identify([opening, prose("elsewhere"), user("c")])).echo is None


async def test_an_unlike_answer_is_a_fork_where_an_unreadable_one_is_stored(client: Client) -> None:
    """It may be the one that is meant."""
    opening = user(OPENING)
    conversation = await client.go_on([opening], prose(1))
    family, own = split_id(conversation)
    await client.store.ask("LSET", f"{keys.family_prefix(family)}:m:{own}", 1, b"broken")
    assert (await client.identify([opening, prose("elsewhere"), user("b")])).echo is None


async def test_of_two_regenerations_the_most_similar_goes_on(client: Client) -> None:
    """Whichever was answered first."""
    first = await client.go_on([user("a")], assistant("<think>x</think>Take the ferry, it leaves at seven o'clock."))
    second = await client.go_on([user("a")], assistant("<think>y</think>Rather wait here for the bus to the harbour."))
    assert first != second
    bus = [user("a"), assistant("Rather wait here for the bus to the harbour."), user("b")]
    ferry = [user("a"), assistant("Take the ferry, it leaves at seven o'clock."), user("c")]
    assert await client.go_on(bus, assistant("yes")) == second
    assert await client.go_on(ferry, assistant("no")) == first
    assert await client.read(second) == raws([*bus, assistant("yes")])
    assert await client.read(first) == raws([*ferry, assistant("no")])


async def test_of_many_regenerations_the_newest_are_compared(client: Client) -> None:
    """One opening under one key, a hundred times; each user's second turn finds its own conversation."""
    for number in range(100):
        colour = uuid.uuid5(uuid.NAMESPACE_OID, str(number)).hex
        conversation = await client.go_on([user("hi")], assistant(f"<think>!</think>{colour}"))
        assert (
            await client.go_on([user("hi"), assistant(colour), user("on")], assistant(f"ok {number}")) == conversation
        )


async def test_an_answer_unlike_any_stored_one_is_a_fork(client: Client) -> None:
    """It was given elsewhere: two openings that are equal up to the first answer are two conversations."""
    first = await client.go_on(
        [user("hi")], assistant("Good morning! The harbour master will see you at eight, bring a pen.")
    )
    other = [user("hi"), assistant("Nothing of what you ask is written down anywhere, I am afraid to say."), user("b")]
    memory = await client.identify(other)
    assert (memory.conversation, memory.diverges, memory.echo) == (first, True, None)


@pytest.mark.parametrize(
    "said",
    [
        [user("a"), echo(1), user("edited")],
        [user("edited"), echo(1), user("b"), echo(2), user("c")],
        [user("a"), echo(1), user("edited"), echo(2), user("c")],
        [user("a"), answer(1), user("edited")],
        [user("a"), echo(1)],
    ],
    ids=["rewind", "first question edited", "question edited", "fork", "nothing new"],
)
async def test_what_was_asked_otherwise_stays_a_fork(client: Client, said: list[Message]) -> None:
    """A conversation that was asked with anything else is left as it is."""
    whole = [user("a"), answer(1), user("b")]
    conversation = await client.go_on(whole, answer(2))
    assert await client.go_on(said, assistant("done")) != conversation
    assert await client.read(conversation) == raws([*whole, answer(2)])


async def test_a_fork_keeps_the_wording_that_it_shares(client: Client) -> None:
    """Its parent goes on in the client's words; the fork has the answers as they were."""
    whole = [user("a"), answer(1), user("b"), answer(2)]
    parent = await client.go_on(whole[:3], answer(2))
    fork = await client.go_on([*whole[:2], user("b2")], answer(3))
    of_fork = await client.go_on([*whole[:2], user("b2"), answer(3), user("c")], answer(4))
    assert of_fork == fork != parent
    changed = [user("a"), echo(1), user("b"), echo(2), user("c")]
    assert await client.go_on(changed, answer(5)) == parent
    assert await client.read(parent) == raws([*changed, answer(5)])
    forked = [user("a"), answer(1), user("b2"), answer(3), user("c"), answer(4)]
    assert await client.read(fork) == raws(forked)
    assert await client.go_on([*forked, user("d")], answer(6)) == fork
    assert await client.read(fork) == raws([*forked, user("d"), answer(6)])
    assert await client.store.forget(parent, client.tenant, "", 1.0)
    assert await client.read(fork) == raws([*forked, user("d"), answer(6)])


async def test_a_fork_of_a_regeneration_outlives_it(client: Client) -> None:
    """The regeneration's own first answer is changed, so nothing is left of what the fork shared with it."""
    await client.go_on([user("a")], answer(1))
    regenerated = await client.go_on([user("a")], answer(2))
    assert await client.go_on([user("a"), answer(2), user("b")], answer(3)) == regenerated
    fork = await client.go_on([user("a"), answer(2), user("b2")], answer(4))
    changed = [user("a"), echo(2), user("b"), echo(3), user("c")]
    assert await client.go_on(changed, answer(5)) == regenerated
    assert await client.store.forget(regenerated, client.tenant, "", 1.0)
    assert await client.read(fork) == raws([user("a"), answer(2), user("b2"), answer(4)])


async def test_a_fork_goes_on_in_other_words(client: Client) -> None:
    """Also where it changes an answer that it shares with its parent, which stays as it is."""
    parent = await client.go_on([user("a"), answer(1), user("b")], answer(2))
    fork = await client.go_on([user("a"), answer(1), user("b2")], answer(3))
    changed = [user("a"), echo(1), user("b2"), echo(3), user("c")]
    assert await client.go_on(changed, answer(4)) == fork
    assert await client.read(fork) == raws([*changed, answer(4)])
    assert await client.read(parent) == raws([user("a"), answer(1), user("b"), answer(2)])
    assert sorted(await client.store.originals(fork)) == [2, 4]
    assert await client.go_on([*changed, echo(4), user("d")], answer(5)) == fork
    assert sorted(await client.store.originals(fork)) == [2, 4, 6]


async def test_two_workers_go_on_at_once(client: Client) -> None:
    """One goes on with the conversation, the other becomes a fork; nothing is lost."""
    conversation = await client.go_on([user("a")], answer(1))
    said = [user("a"), echo(1), user("b")]
    memory = await client.identify(said)
    ids = await asyncio.gather(*(client.finish(said, assistant(f"reply {number}"), memory) for number in range(8)))
    assert len(set(ids)) == 8
    assert conversation in ids
    for number, one in enumerate(ids):
        assert await client.read(one) == raws([*said, assistant(f"reply {number}")])


async def test_a_turn_that_is_written_twice_is_written_once(client: Client) -> None:
    """A write whose answer was lost is repeated."""
    conversation = await client.go_on([user("a")], answer(1))
    said = [user("a"), echo(1), user("b")]
    memory = await client.identify(said)
    assert await client.finish(said, answer(2), memory) == conversation
    assert await client.finish(said, answer(2), memory) == conversation
    assert await client.read(conversation) == raws([*said, answer(2)])


async def test_a_conversation_that_went_on_meanwhile_stays(client: Client) -> None:
    """What another worker added is never taken away."""
    conversation = await client.go_on([user("a")], answer(1))
    changed = [user("a"), echo(1), user("b")]
    memory = await client.identify(changed)
    await client.go_on([user("a"), answer(1), user("c")], answer(3))
    fork = await client.finish(changed, answer(2), memory)
    assert fork != conversation
    assert await client.read(conversation) == raws([user("a"), answer(1), user("c"), answer(3)])
    assert await client.read(fork) == raws([*changed, answer(2)])


async def test_a_summary_before_the_changed_answer_stays_in_use(client: Client) -> None:
    """The prefix that it stands for has not changed."""
    said = dialogue(9)
    conversation = await client.go_on(said, answer(1))
    summary = summary_of(chain_of(client.tenant, said), 6)
    await client.store.keep_summary(client.tenant, conversation, chain_of(client.tenant, said), summary)
    changed = [*said, echo(1), user("on")]
    assert (await client.identify(changed)).summary == summary
    assert await client.go_on(changed, answer(2)) == conversation
    assert (await client.identify([*changed, answer(2), user("on")])).summary == summary
    assert await client.store.summaries(conversation, standing=True) == [summary]


async def test_nothing_is_left_of_a_forgotten_conversation(client: Client, url: str) -> None:
    """Neither the client's wording nor the original."""
    conversation = await client.go_on([user("a")], answer(1))
    await client.go_on([user("a"), echo(1), user("b")], answer(2))
    assert await client.store.forget(conversation, client.tenant, "", 1.0)
    family, own = split_id(conversation)
    assert await client.store.originals(conversation) == {}
    left = keys_of(url, f"{keys.family_prefix(family)}:*")
    assert left == [f"{keys.family_prefix(family)}:x:{own}".encode()]


async def test_every_key_expires(client: Client, url: str) -> None:
    """The originals, too, and what leads to forks."""
    conversation = await client.go_on([user("a"), answer(1), user("b")], answer(2))
    await client.go_on([user("a"), answer(1), user("b2")], answer(3))
    await client.go_on([user("a"), echo(1), user("b"), echo(2), user("c")], answer(4))
    family, _ = split_id(conversation)
    for key in keys_of(url, f"{keys.family_prefix(family)}:*"):
        assert await client.store.ask("TTL", key) > 0, key


async def test_an_unreadable_branch_is_not_compared(client: Client) -> None:
    """It may hold anything."""
    conversation = await client.go_on([user("a")], answer(1))
    family, own = split_id(conversation)
    await client.store.ask("LSET", f"{keys.family_prefix(family)}:m:{own}", 1, b"broken")
    memory = await client.identify([user("a"), echo(1), user("b")])
    assert (memory.diverges, memory.echo) == (True, None)


async def test_a_record_of_an_older_turn_needs_no_echo(client: Client) -> None:
    """A turn without one appends, as ever."""
    turn = turn_of(client.tenant, [user("a"), answer(1)])
    assert turn.echo is None
    assert await client.store.record(turn) == turn.conversation


@dataclass(frozen=True)
class Move:
    """One turn: it takes an earlier history, cuts it, changes its answers or a question, and goes on."""

    branch: int
    cut: int
    change: int | None
    edit: int | None
    new: str
    stale: bool


_MOVES = st.builds(
    Move,
    branch=st.sampled_from([-1, -1, -1, -2, 1, 2, 3]),
    cut=st.sampled_from([0, 0, 0, 0, 2, 4]),
    change=st.sampled_from([0, 0, 1, 2, None]),
    edit=st.sampled_from([None, None, None, None, 0, 1, 2]),
    new=st.sampled_from(["a", "b"]),
    stale=st.booleans(),
)


@dataclass
class Told:
    """What every conversation has, as its last turn left it."""

    histories: list[list[Message]] = field(default_factory=lambda: [[]])
    conversations: dict[str, list[Message]] = field(default_factory=dict)


async def _move(client: Client, told: Told, move: Move, number: int) -> None:
    history = told.histories[move.branch % len(told.histories)]
    said = list(history[: max(0, len(history) - move.cut)])
    if move.change is not None:
        said = [
            assistant(f"{one.text} +{number}") if place % 2 and place >= len(said) - 1 - 2 * move.change else one
            for place, one in enumerate(said)
        ]
    if move.edit is not None and len(said) > 2 * move.edit:
        said[2 * move.edit] = user(f"{said[2 * move.edit].text}'")
    if said and said[-1].role == "user":
        said.pop()
    said.append(user(move.new))
    memory = await client.identify(said)
    conversation = await client.finish(said, assistant(f"{ANSWER} {number}"), memory)
    if memory.echo is not None:
        assert conversation == memory.echo.conversation
        before = told.conversations[conversation]
        assert [one.text for one in before if one.role == "user"] == [
            one.text for one in said[: len(before)] if one.role == "user"
        ]
    told.conversations[conversation] = [*said, assistant(f"{ANSWER} {number}")]
    if move.stale:  # a retry that was identified before
        retried = await client.finish(said, assistant(f"{ANSWER} again {number}"), memory)
        told.conversations[retried] = [*said, assistant(f"{ANSWER} again {number}")]
    told.histories.append(told.conversations[conversation])


async def _read_all(client: Client, told: Told) -> None:
    """Each conversation reads as its own last turn left it; they are read at once, which saves waiting."""

    async def read(conversation: str, messages: list[Message]) -> None:
        assert await client.read(conversation) == raws(messages)
        record = await client.store.conversation(conversation)
        assert record is not None
        assert (record.id, record.message_count) == (conversation, len(messages))

    await asyncio.gather(*(read(conversation, messages) for conversation, messages in told.conversations.items()))


@settings(max_examples=examples(60), deadline=None)
@given(moves=st.lists(_MOVES, min_size=4, max_size=14), seed=st.integers(0, 10**6))
async def test_no_conversation_changes_but_the_one_that_goes_on(
    server: EmbeddedValkey, moves: list[Move], seed: int
) -> None:
    """After every turn each conversation reads as its own last turn left it, whatever others did.

    In the end all are forgotten, in any order, and the others stay.
    """
    store = RedisStore(server.url, Codec(), ttl_seconds=3600, recall_timeout_seconds=5, record_timeout_seconds=5)
    client, told = Client(store, uuid.uuid4().hex), Told()
    try:
        for number, move in enumerate(moves):
            await _move(client, told, move, number)
            await _read_all(client, told)
        for messages in told.conversations.values():
            assert (await client.recall(messages)).stored_count == len(messages)
        for forgotten in random.Random(seed).sample(sorted(told.conversations), len(told.conversations)):
            assert await store.forget(forgotten, client.tenant, "", 1.0)
            del told.conversations[forgotten]
            await _read_all(client, told)
    finally:
        await store.close()
