"""How much a credential has stored: bounded, shared by all workers, and found again when conversations are gone."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import pytest

from tests.store.turns import assistant, turn_of, user
from tidemark.core.conversation.kept import PREFIX, KeptConversation, KeptItem
from tidemark.core.conversation.responses import ResponseRecord
from tidemark.core.errors import ImportLimit, StoreFull, StoreUnavailable
from tidemark.store import usage
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.usage import A_DAY_SECONDS, MEGABYTE, TURN_BYTES, UNPROVEN_BYTES, UNPROVEN_BYTES_A_DAY, OwnerUsage

Open = Callable[[], RedisStore]
TEXT = "".join(chr(place * 7919 % 20_000 + 0x4E00) for place in range(33_000))
"""A tenth of a megabyte that cannot be compressed."""
MOST_BYTES = 2 * MEGABYTE
_days = itertools.count(10_000)


@pytest.fixture
async def opened(url: str, anyio_backend: str) -> AsyncIterator[Open]:
    """Opens stores, as workers do, whose bound is two megabytes."""
    async with AsyncExitStack() as stack:

        def made() -> RedisStore:
            one = RedisStore(
                url,
                Codec(),
                ttl_seconds=100,
                max_tenant_bytes=MOST_BYTES,
                recall_timeout_seconds=5,
                record_timeout_seconds=5,
            )
            stack.push_async_callback(one.close)
            return one

        yield made


@pytest.fixture
def now() -> float:
    """A day that no other test has."""
    return next(_days) * float(A_DAY_SECONDS)


async def fill(store: RedisStore, owner: str, conversations: int) -> list[str]:
    """Store conversations of a tenth of a megabyte, until there are so many or no more are stored."""
    made: list[str] = []
    with suppress(StoreFull):
        for _ in range(conversations):
            made.append(await store.record(turn_of(owner, [user(f"{uuid.uuid4()} {TEXT}"), assistant("Yes.")])))
            await store.listing.settle()
            await store.usage.settle()
    return made


async def test_a_tenant_stores_no_more_than_its_bound(opened: Open, tenant: str, now: float) -> None:
    """507 in the end; other tenants are served, and another worker knows by its next write."""
    store, other = opened(), opened()
    assert 10 < len(await fill(store, tenant, 40)) < 30
    with pytest.raises(StoreFull, match=r"store\.max_tenant_mb"):
        await store.record(turn_of(tenant, [user("one"), assistant("two")]))
    assert len(await fill(store, tenant[::-1], 1)) == 1
    assert len(await fill(other, tenant, 5)) < 2


async def test_what_responses_repeat_of_a_request_counts(opened: Open, tenant: str) -> None:
    """Instructions and tools are stored with the response, however short the messages are."""
    store, stored = opened(), 0
    with suppress(StoreFull):
        for stored in range(40):
            head = {"id": b'"resp"', "instructions": f'"{stored} {TEXT}"'.encode(), "output": b""}
            response = ResponseRecord(f"resp_{stored}", 2, "small", 1.5, head=head)
            turn = turn_of(tenant, [user(f"{stored}"), assistant("Yes.")])
            await store.record(replace(turn, response=response))
            await store.listing.settle()
            await store.usage.settle()
    assert 10 < stored < 30


async def test_the_response_of_a_full_tenant_is_its_own_all_the_same(opened: Open, tenant: str, now: float) -> None:
    """Its upstream has it, in an account that tenants share."""
    store = opened()
    await fill(store, tenant, 40)
    response = ResponseRecord(f"resp_{tenant}", 2, "small", 1.5, head={"output": b""}, account="https://shared/v1")
    with pytest.raises(StoreFull):
        await store.record(replace(turn_of(tenant, [user("one"), assistant("two")]), response=response))
    assert await store.owners.owners("https://shared/v1", [response.id]) == [tenant]


async def test_what_was_forgotten_makes_room(opened: Open, tenant: str, now: float) -> None:
    """The conversations that are left are weighed, since nobody says which have expired."""
    store = opened()
    made = await fill(store, tenant, 40)
    for conversation in made[:5]:
        assert await store.forget(conversation, tenant, "", now)
    await store.usage.settle()
    assert len(await fill(store, tenant, 1)) == 1


async def test_conversations_that_are_gone_do_not_count(opened: Open, tenant: str, now: float) -> None:
    """What is written only grows, so a count that is too high mends itself before anybody is refused."""
    store = opened()
    await fill(store, tenant, 1)
    await store.ask("HSET", f"tm:u:{tenant}", "bytes", 10 * MEGABYTE)
    await fill(store, tenant, 2)
    assert int(await store.ask("HGET", f"tm:u:{tenant}", "bytes")) < MEGABYTE


async def test_conversations_that_a_client_keeps_by_id_count(opened: Open, tenant: str, now: float) -> None:
    """Those of the Conversations API, until they are deleted; then more is stored."""
    store = opened()
    kept = KeptConversation(f"{PREFIX}{tenant}", now, b"{}")
    raw = json.dumps({"role": "user", "content": TEXT}, ensure_ascii=False).encode()
    await store.kept_conversations.create(tenant, kept, [])
    for number in range(25):
        assert await store.kept_conversations.add(tenant, kept, [KeptItem(f"msg_{number}", raw)])
    await store.usage.settle()
    assert tenant in store.usage.full
    with pytest.raises(StoreFull):
        await store.usage.admit(tenant, 1, now, trusted=False)
    assert await store.kept_conversations.forget(tenant, kept.id)
    await store.usage.forgotten(tenant)
    await store.usage.settle()
    assert tenant not in store.usage.full


async def test_a_credential_that_was_answered_may_import_what_fits(opened: Open, tenant: str, now: float) -> None:
    """The mark of one worker holds for all, and is there a moment after the turn."""
    store, other = opened(), opened()
    await fill(store, tenant, 1)
    assert not await other.usage.admit(tenant, UNPROVEN_BYTES + 200_000, now, trusted=False)
    with pytest.raises(StoreFull):
        await other.usage.admit(tenant, MOST_BYTES, now, trusted=False)


async def test_an_unknown_credential_imports_a_megabyte_in_all(opened: Open, tenant: str, now: float) -> None:
    """By however many imports; one that came to nothing is given back; the operator any."""
    store, other = opened(), opened()
    half = UNPROVEN_BYTES // 2
    with pytest.raises(ImportLimit, match="1 MB in all"):
        await store.usage.admit(tenant, UNPROVEN_BYTES + 1, now, trusted=False)
    for one in (store, other):
        assert await one.usage.admit(tenant, half, now, trusted=False)
    with pytest.raises(ImportLimit, match="Send a chat request"):
        await other.usage.admit(tenant, 10, now, trusted=False)
    await store.usage.withdraw(tenant, half, now)
    assert await other.usage.admit(tenant, half, now, trusted=False)
    assert not await store.usage.admit(tenant, half, now, trusted=True)


async def test_made_up_credentials_together_import_little(opened: Open, tenant: str, now: float) -> None:
    """Anybody can make up any number of them; the next day more of them are counted."""
    store = opened()
    most = UNPROVEN_BYTES_A_DAY // UNPROVEN_BYTES
    for number in range(most):
        assert await store.usage.admit(f"{tenant}{number}", UNPROVEN_BYTES, now, trusted=False)
    with pytest.raises(ImportLimit, match="enough for today"):
        await store.usage.admit(tenant, 10, now, trusted=False)
    assert await store.usage.admit(tenant, 10, now + A_DAY_SECONDS, trusted=False)


async def test_an_imported_conversation_is_no_answer_of_an_upstream(opened: Open, tenant: str, now: float) -> None:
    """Else one import would lead to the next."""
    store = opened()
    turn = turn_of(tenant, [user("one"), assistant("two")])
    await store.record(replace(turn, imported=True))
    await store.usage.settle()
    assert await store.usage.admit(tenant, 10, now, trusted=False)


async def test_an_emptied_store_learns_anew_who_was_accepted(opened: Open, tenant: str, now: float) -> None:
    """A worker that has said so once says so again."""
    store = opened()
    await fill(store, tenant, 1)
    await store.ask("DEL", f"tm:u:{tenant}")
    await fill(store, tenant, 2)
    assert not await store.usage.admit(tenant, 10, now, trusted=False)


async def test_many_turns_are_one_write(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request waits for the count, nor pays for a command of its own."""
    monkeypatch.setattr(usage, "WRITE_SECONDS", 3600.0)
    asked: list[object] = []

    async def ask(*command: object) -> int:
        asked.append(command[0])
        return 0

    async def weigh(_: str) -> int:
        return 0

    counting = OwnerUsage(ask, weigh, max_bytes=None, keep_seconds=100)
    for _ in range(1000):
        counting.note("busy", 10, accepted=True)
    await counting.aclose()
    assert asked == ["EVAL"]


async def test_what_the_store_did_not_take_is_written_later(anyio_backend: str) -> None:
    """Neither bytes nor a credential's mark is lost, and nobody waits for a store that is gone."""
    asked: list[tuple[object, ...]] = []
    gone = True

    async def ask(*command: object) -> int:
        if gone:
            raise StoreUnavailable("gone")
        asked.append(command[3:6])
        return 1

    async def weigh(_: str) -> int:
        return 0

    counting = OwnerUsage(ask, weigh, max_bytes=None, keep_seconds=100)
    counting.note("patient", 10, accepted=True)
    await counting.settle()
    counting.note("patient", 10, accepted=True)
    gone = False
    await counting.aclose()
    assert asked == [("tm:u:patient", 20 + 2 * TURN_BYTES, 1)]
