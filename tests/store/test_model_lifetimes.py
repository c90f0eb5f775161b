"""A model's own lifetime: of the conversation whose last request named it, and of what its forks need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from tests.store.turns import RECIPE, assistant, dialogue, summary_of, turn_of, user
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import PrefixChain, chain_of
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.lifetimes import Lifetime, Lifetimes
from tidemark.store.references import recipe_digest
from tidemark.store.summary_replacement import RedisSummaryReplacement

USUAL, SHORT, LONG = 10_000, 1_000, 100_000
IDLES = {"short": SHORT, "long": LONG}


@pytest.fixture
async def store(url: str, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """A store in which two models have lifetimes of their own."""
    lifetimes = Lifetimes(Lifetime(USUAL), None, IDLES.get, IDLES.values())
    opened = RedisStore(
        url, Codec(), ttl_seconds=None, lifetimes=lifetimes, recall_timeout_seconds=5, record_timeout_seconds=5
    )
    yield opened
    await opened.close()


async def say(store: RedisStore, tenant: str, model: str, messages: Sequence[Message]) -> str:
    """One turn, and the id of the conversation that has it."""
    memory = await store.recall(chain_of(tenant, messages), RECIPE)
    known = {"known": memory.stored_count, "conversation": None if memory.diverges else memory.conversation}
    return await store.record(replace(turn_of(tenant, messages, **known), model=model))  # type: ignore[arg-type] # both fit


def key_of(chain: PrefixChain, covered: int, *, waiting: bool = False) -> bytes:
    """The key of a summary of the first messages of a chain."""
    return keys.summary(chain.family, recipe_digest(RECIPE), chain.at(covered), (), waiting=waiting)


async def rests(store: RedisStore, conversation: str) -> set[int]:
    """The lifetimes of all parts of a conversation, by the setting that each is nearest to."""
    place = f"tm:{{{conversation[:32]}}}:%s:{conversation[32:]}"
    seconds = [int(await store.ask("TTL", place % kind)) for kind in "chmtyrqbovz"]
    assert -1 not in seconds, "a part is kept for ever"
    return {next(idle for idle in (SHORT, USUAL, LONG) if idle - 100 < rest <= idle) for rest in seconds if rest != -2}


@pytest.mark.parametrize(("model", "idle"), [("short", SHORT), ("long", LONG), ("other", USUAL)])
async def test_a_conversation_is_kept_as_its_model_says(store: RedisStore, tenant: str, model: str, idle: int) -> None:
    """From its first turn on, and after later ones; also what was stored before its first turn."""
    said = dialogue(3)
    conversation = await say(store, tenant, model, said[:1])
    assert await rests(store, conversation) == {idle}
    assert await say(store, tenant, model, said) == conversation
    await store.keep_summary(tenant, conversation, chain_of(tenant, said), summary_of(chain_of(tenant, said), 2))
    assert await rests(store, conversation) == {idle}


async def test_the_last_requests_model_decides(store: RedisStore, tenant: str) -> None:
    """Messages, summaries and what is prepared: all of it, at once, in both directions."""
    said = dialogue(7)
    conversation = await say(store, tenant, "other", said[:3])
    chain = chain_of(tenant, said[:3])
    await store.keep_summary(tenant, conversation, chain, summary_of(chain, 2))
    await store.keep_summary(tenant, conversation, chain, summary_of(chain, 3), waiting=True)
    at = [key_of(chain, 2), key_of(chain, 3, waiting=True)]
    for count, model, idle in ((5, "short", SHORT), (6, "other", USUAL), (7, "long", LONG)):
        assert await say(store, tenant, model, said[:count]) == conversation
        assert await rests(store, conversation) == {idle}
        assert [idle - 100 < int(await store.ask("TTL", name)) <= idle for name in at] == [True, True]


async def test_a_summary_that_was_stored_before_the_first_turn_lives_as_long_as_the_rest(
    store: RedisStore, tenant: str
) -> None:
    """A request's summary is made before its reply ends, when no model has been noted yet."""
    said = dialogue(3)
    turn = turn_of(tenant, said)
    await store.keep_summary(tenant, turn.conversation, turn.chain, summary_of(turn.chain, 2))
    await say(store, tenant, "short", said)
    assert 0 < int(await store.ask("TTL", key_of(turn.chain, 2))) <= SHORT


async def test_a_fork_that_is_kept_for_longer_keeps_what_it_shares(store: RedisStore, tenant: str) -> None:
    """Its first messages are its parents', which a later turn of the parents does not shorten again."""
    said = dialogue(4)
    trunk = await say(store, tenant, "short", said)
    edited = [*said[:2], user("otherwise"), assistant("so"), user("and")]
    middle = await say(store, tenant, "short", edited)
    assert await rests(store, trunk) == await rests(store, middle) == {SHORT}
    last = await say(store, tenant, "other", [*edited[:4], user("once more")])
    assert len({trunk, middle, last}) == 3
    assert await rests(store, trunk) == await rests(store, middle) == await rests(store, last) == {USUAL}
    assert await say(store, tenant, "short", [*said, user("on")]) == trunk
    assert await rests(store, trunk) == {USUAL}, "the forks need its first messages"
    assert await say(store, tenant, "long", [*edited[:4], user("once more"), assistant("yes")]) == last
    assert await rests(store, trunk) == await rests(store, middle) == await rests(store, last) == {LONG}


async def test_a_fork_that_is_kept_for_less_shortens_nothing(store: RedisStore, tenant: str) -> None:
    """Neither its parent nor the summary that both use."""
    said = dialogue(4)
    trunk = await say(store, tenant, "other", said)
    chain = chain_of(tenant, said)
    await store.keep_summary(tenant, trunk, chain, summary_of(chain, 2))
    edited = [*said[:3], assistant("otherwise")]
    fork = await say(store, tenant, "short", edited)
    assert fork != trunk
    assert (await rests(store, trunk), await rests(store, fork)) == ({USUAL}, {SHORT})
    summary = key_of(chain, 2)
    assert int(await store.ask("TTL", summary)) > SHORT
    again = summary_of(chain_of(tenant, edited), 2)
    await store.keep_summary(tenant, fork, chain_of(tenant, edited), again)
    assert int(await store.ask("TTL", summary)) > SHORT
    await store.keep_summary(tenant, fork, chain_of(tenant, edited), again, replacing=True)
    assert int(await store.ask("TTL", summary)) > SHORT
    lifetimes = Lifetimes(Lifetime(USUAL), None, IDLES.get, IDLES.values())
    edits = RedisSummaryReplacement(store.ask, Codec(), lifetimes=lifetimes)
    await edits.replace(tenant, fork, summary_of(chain_of(tenant, edited), 2, "by a person"))
    assert int(await store.ask("TTL", summary)) > SHORT


@pytest.mark.parametrize("first", ["other", "long"])
async def test_a_trunk_that_is_kept_for_less_later_keeps_what_its_forks_need(
    store: RedisStore, tenant: str, first: str
) -> None:
    """They began when both were kept alike, or the trunk for longer; a fork's own later turns need no less."""
    said = dialogue(4)
    trunk = await say(store, tenant, first, said)
    edited = [*said[:3], assistant("otherwise")]
    fork = await say(store, tenant, "other", edited)
    assert await say(store, tenant, "short", [*said, user("on")]) == trunk
    assert await rests(store, trunk) == await rests(store, fork) == {USUAL}
    assert await say(store, tenant, "other", [*edited, user("and")]) == fork
    assert await say(store, tenant, "short", [*said, user("on"), assistant("so")]) == trunk
    assert await rests(store, trunk) == await rests(store, fork) == {USUAL}
    assert [one.raw for one in await store.messages(fork)] == [one.raw for one in [*edited, user("and")]]


async def test_what_a_fork_needed_ends_with_it(store: RedisStore, tenant: str) -> None:
    """A trunk that nobody's fork needs any more is kept as its own model says."""
    said = dialogue(4)
    trunk = await say(store, tenant, "short", said)
    await say(store, tenant, "other", [*said[:2], user("otherwise")])
    record = f"tm:{{{trunk[:32]}}}:c:{trunk[32:]}"
    await store.ask("HSET", record, "lent", int(await store.ask("HGET", record, "lent")) - USUAL)  # as much later
    await say(store, tenant, "short", [*said, user("on")])
    assert await rests(store, trunk) == {SHORT}


async def test_a_summary_of_a_turn_that_never_ends_lives_as_its_model_says(store: RedisStore, tenant: str) -> None:
    """Its upstream failed, so the conversation has no record that says how long."""
    turn = turn_of(tenant, dialogue(3))
    await store.keep_summary(tenant, turn.conversation, turn.chain, summary_of(turn.chain, 2), model="short")
    assert 0 < int(await store.ask("TTL", key_of(turn.chain, 2))) <= SHORT


@pytest.mark.parametrize(
    ("model", "own", "expected"),
    [
        ("long", None, Lifetime(LONG, 0, USUAL)),
        ("long", Lifetime(500, 7), Lifetime(500, 7, 500)),
        ("short", Lifetime(50_000, 7), Lifetime(SHORT, 7, 50_000)),
        ("other", Lifetime(500), Lifetime(500, 0, 500)),
        ("", None, Lifetime(USUAL, 0, USUAL)),
    ],
)
def test_of_a_tenants_and_a_models_the_shorter_one_applies(
    model: str, own: Lifetime | None, expected: Lifetime
) -> None:
    """A model's replaces only what applies to everybody."""
    lifetimes = Lifetimes(Lifetime(USUAL), {"own": own} if own else {}, IDLES.get, IDLES.values())
    assert lifetimes.of("own", model) == expected


def test_a_tenant_that_states_its_age_alone_leaves_the_idle_time_to_the_model() -> None:
    """It states none that could be shorter; without a model's the usual one applies."""
    lifetimes = Lifetimes(Lifetime(USUAL), {"own": Lifetime(USUAL, 7)}, IDLES.get, IDLES.values(), {"own"})
    assert lifetimes.of("own", "long") == Lifetime(LONG, 7, USUAL)
    assert lifetimes.of("own", "other") == Lifetime(USUAL, 7, USUAL)


def test_lists_are_kept_as_long_as_the_longest() -> None:
    """A list has conversations of all models."""
    assert Lifetimes(Lifetime(USUAL), None, IDLES.get, IDLES.values()).longest == LONG
    assert Lifetimes(Lifetime(0), None, IDLES.get, IDLES.values()).longest == 0
