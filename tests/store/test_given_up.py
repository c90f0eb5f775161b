"""Turns whose write or whose beginning failed: what they leave behind in the store holds nobody up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.store.test_turns import begin_turn, turn_record
from tests.store.turns import assistant, user
from tidemark.core.errors import StoreUnavailable
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

SAID = [user("one"), assistant("two")]
MORE = [*SAID, user("three"), assistant("four")]


async def test_a_turn_that_was_given_up_is_free_and_a_late_write_of_it_is_a_fork(
    store: RedisStore, tenant: str
) -> None:
    """Its client was told that it is lost, so it is no part of the conversation; and yet nothing is thrown away."""
    id_ = await store.record(turn_record(tenant, SAID, 0, await begin_turn(store, tenant)))
    slow = turn_record(tenant, MORE, 2, await begin_turn(store, tenant))
    store.turns.give_up(slow)
    again = await begin_turn(store, tenant)
    assert again.lease is not None
    assert again.record is not None
    assert (again.record.id, again.record.message_count) == (id_, 2)
    late = await store.record(slow)
    assert late != id_
    assert await store.record(turn_record(tenant, [*SAID, user("three"), assistant("five")], 2, again)) == id_


async def test_an_answer_that_was_stored_and_told_lost_is_marked(store: RedisStore, tenant: str) -> None:
    """So that the same question asks for it anew; what is appended after it takes the mark's meaning away."""
    await store.record(turn_record(tenant, SAID, 0, await begin_turn(store, tenant)))
    turn = turn_record(tenant, MORE, 2, await begin_turn(store, tenant))
    await store.record(turn)
    store.turns.give_up(turn)
    again = await begin_turn(store, tenant)
    assert again.record is not None
    assert (again.record.message_count, again.record.lost_reply_position) == (4, 4)
    await store.record(turn_record(tenant, [*MORE, user("five"), assistant("six")], 4, again))
    after = await begin_turn(store, tenant)
    assert after.record is not None
    assert after.record.lost_reply_position != after.record.message_count


async def test_a_turn_whose_taking_was_given_up_is_given_back(store: RedisStore, tenant: str) -> None:
    """A client leaves while it is taken: whoever comes next is not told for ten seconds that somebody holds it."""
    given_up = 0
    for delay in range(40):
        one = f"{tenant}{delay}"
        taking = asyncio.create_task(begin_turn(store, one))
        await asyncio.sleep(delay / 20_000)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        if taking.cancelled():
            given_up += 1
            assert (await begin_turn(store, one)).lease is not None
    assert given_up


async def test_while_the_store_is_away_nothing_is_owed_to_it(tmp_path: Path, tenant: str) -> None:
    """What was never sent leaves nothing behind, however many ask."""
    store = RedisStore(f"unix://{tmp_path}/nobody.sock", Codec(), ttl_seconds=None)
    for _ in range(100):
        with pytest.raises(StoreUnavailable):
            await begin_turn(store, tenant)
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert len(others) < 5
    await store.close()
