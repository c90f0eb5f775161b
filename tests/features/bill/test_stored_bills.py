"""The bill in the store: added over workers, once for each batch, and gone after its time."""

from __future__ import annotations

import uuid

import pytest
import redis

from tests.store.conftest import admin, alone, anyio_backend, client, cluster_url, server, store, tenant, url
from tests.store.turns import Client, assistant, dialogue
from tidemark.core.bill import AMOUNTS, BillFigures, EarlierTurn
from tidemark.core.conversation.prefix import split_id
from tidemark.features.bill.store import DAYS, RedisDays
from tidemark.store import keys
from tidemark.store.bills import MOST_WRITERS, NO_BILL, ConversationBill, RedisBills
from tidemark.store.conversations import RedisStore

__all__ = ["admin", "alone", "anyio_backend", "client", "cluster_url", "server", "store", "tenant", "url"]

pytestmark = pytest.mark.anyio
FIGURES = BillFigures(**{name: number for number, name in enumerate(AMOUNTS, 1)})
TURN = EarlierTurn("m", 5000, 1000.25, caches=True)


def fresh() -> int:
    """Return a day that no other test writes to."""
    return 10**6 + uuid.uuid4().int % 10**9


def doubled() -> BillFigures:
    """Return two times the figures."""
    figures = BillFigures()
    figures.add(FIGURES)
    figures.add(FIGURES)
    return figures


async def test_workers_add_up_by_day_and_model(store: RedisStore) -> None:
    """A model's name may be any text."""
    days, day = RedisDays(store.ask), fresh()
    await days.add(uuid.uuid4().hex, 1, {(day, "a b: \u00e9"): FIGURES, (day + 1, "m"): FIGURES})
    await days.add(uuid.uuid4().hex, 1, {(day, "a b: \u00e9"): FIGURES})
    assert await days.read(day - 1, day + 1) == {(day, "a b: \u00e9"): doubled(), (day + 1, "m"): FIGURES}


async def test_a_batch_that_is_sent_again_counts_once(store: RedisStore) -> None:
    """Its answer was lost; the next one counts."""
    days, day, writer = RedisDays(store.ask), fresh(), uuid.uuid4().hex
    for number in (1, 1, 2, 1):
        await days.add(writer, number, {(day, "m"): FIGURES})
    assert (await days.read(day, day))[day, "m"] == doubled()


async def test_a_day_is_gone_after_its_time(alone: RedisStore, admin: redis.Redis) -> None:
    """Nothing stays for ever, and a newer version's figures are left out."""
    days, day, writer = RedisDays(alone.ask), fresh(), uuid.uuid4().hex
    await days.add(writer, 1, {(day, "m"): FIGURES})
    assert 0 < int(admin.ttl(f"{keys.BILL}:d:{day}")) <= DAYS * 86_400
    assert int(admin.ttl(f"{keys.BILL}:b:{writer}")) > 0
    admin.hset(f"{keys.BILL}:d:{day}", "newer m", 5)
    assert await days.read(day, day) == {(day, "m"): FIGURES}


async def test_a_conversation_s_bill_lives_as_long_as_its_record(alone: RedisStore, admin: redis.Redis) -> None:
    """It is added to once for each batch, also by an id that led to the conversation before."""
    bills, family, own = RedisBills(alone.ask), uuid.uuid4().hex, "a" * 16
    record = f"{keys.family_prefix(family)}:c:{own}"
    await bills.add(family + own, "w 1", FIGURES, TURN)
    assert await bills.read(family + own) == NO_BILL
    admin.hset(record, "base", 0)
    admin.expire(record, 1000)
    admin.set(f"{keys.family_prefix(family)}:a:{'b' * 16}", own)
    for batch in ("w 1", "w 1", "w 2"):
        await bills.add(family + "b" * 16, batch, FIGURES, TURN)
    assert await bills.read(family + own) == ConversationBill(doubled(), TURN)
    assert 0 < int(admin.ttl(f"{keys.family_prefix(family)}:p:{own}")) <= 1000
    await bills.add(family + own, "w 3", BillFigures(summary_tokens=1), None)
    assert (await bills.read(family + own)).newest == TURN


async def test_a_lost_answer_counts_once_whoever_wrote_meanwhile(alone: RedisStore, admin: redis.Redis) -> None:
    """Each worker has a field of its own; of very many workers that wrote long ago none stays."""
    bills, family, own = RedisBills(alone.ask), uuid.uuid4().hex, "a" * 16
    admin.hset(f"{keys.family_prefix(family)}:c:{own}", "base", 0)
    for batch in ("w 1", "v 7", "w 1", "v 7"):
        await bills.add(family + own, batch, FIGURES, TURN)
    assert await bills.read(family + own) == ConversationBill(doubled(), TURN)
    for number in range(3 * MOST_WRITERS):
        await bills.add(family + own, f"x{number} 1", BillFigures(), None)
        await bills.add(family + own, f"x{number} 1", FIGURES, None)
    assert await bills.read(family + own) == ConversationBill(doubled(), TURN)
    assert admin.hlen(f"{keys.family_prefix(family)}:p:{own}") <= MOST_WRITERS + len(AMOUNTS) + 5


async def test_a_forgotten_conversation_has_no_bill(client: Client, admin: redis.Redis) -> None:
    """And gets none from a turn that was under way."""
    bills, conversation = RedisBills(client.store.ask), await client.send(dialogue(3), assistant("message 4"))
    family, own = split_id(conversation)
    await bills.add(conversation, "w 1", FIGURES, TURN)
    assert (await bills.read(conversation)).newest == TURN
    await client.store.forget(conversation, client.tenant, "", 1.0)
    await bills.add(conversation, "w 2", FIGURES, TURN)
    assert await bills.read(conversation) == NO_BILL
    assert not admin.exists(f"{keys.family_prefix(family)}:p:{own}")


async def test_a_broken_bill_is_none(alone: RedisStore, admin: redis.Redis) -> None:
    """No money is made of it."""
    bills, family, own = RedisBills(alone.ask), uuid.uuid4().hex, "a" * 16
    admin.hset(f"{keys.family_prefix(family)}:c:{own}", "base", 0)
    admin.hset(f"{keys.family_prefix(family)}:p:{own}", "requests", "many")
    assert await bills.read(family + own) == NO_BILL
