"""A command whose reply was lost is sent once more: who took something with it holds that, and nobody else."""

from __future__ import annotations

from pathlib import Path

from tests.store.test_turns import begin_turn, turn_record
from tests.store.turns import RECIPE, assistant, dialogue, user
from tests.support.losing import Losing
from tidemark.core.conversation.prefix import chain_of
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.leases import RedisLeases


async def test_a_turn_whose_reply_was_lost_is_its_takers_all_the_same(
    server: EmbeddedValkey, tenant: str, tmp_path: Path
) -> None:
    """The command is repeated, and finds its own turn; the next one is refused as ever."""
    async with Losing(server.url, tmp_path).open() as way:
        store = RedisStore(way.url, Codec(), ttl_seconds=None, record_timeout_seconds=5)
        await begin_turn(store, f"{tenant} beside")
        way.armed = True
        first = await begin_turn(store, tenant)
        assert not way.armed
        assert first.lease is not None
        assert (await begin_turn(store, tenant)).lease is None
        await store.record(turn_record(tenant, [user("one"), assistant("two")], 0, first))
        assert (await begin_turn(store, tenant)).lease is not None
        await store.close()


async def test_a_lease_whose_reply_was_lost_is_its_takers_all_the_same(
    server: EmbeddedValkey, tenant: str, tmp_path: Path
) -> None:
    """Nobody waits for a maker that there is not; the lease can be held and given back."""
    async with Losing(server.url, tmp_path).open() as way:
        store = RedisStore(way.url, Codec(), ttl_seconds=None, record_timeout_seconds=5)
        leases, chain = RedisLeases(store.ask), chain_of(tenant, dialogue(9))
        await store.ping()
        way.armed = True
        lease = await leases.take("s", chain, 7, RECIPE, 30)
        assert not way.armed
        assert lease is not None
        assert await leases.take("s", chain, 7, RECIPE, 30) is None
        assert await leases.renew(lease, 30)
        await leases.release(lease)
        assert not await leases.is_taken(chain.family, "s")
        await store.close()
