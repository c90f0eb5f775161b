"""The lists of conversations: a new one is on them soon, one that is in use is written once a minute and not more."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from tests.store.conftest import keys_of
from tests.store.turns import dialogue, listed, turn_of
from tidemark.core.errors import StoreUnavailable
from tidemark.core.events import ConversationsExpired, Event
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.listing import SOON_SECONDS, Listing, Used


class Asked:
    """A store that notes what it is asked to write."""

    def __init__(self) -> None:
        self.away = False
        self.written: list[str] = []
        self.led: list[str] = []
        self.batches = 0

    async def __call__(self, command: str, _: str, *rest: str) -> list[object]:
        """One command."""
        if self.away:
            raise StoreUnavailable("away")
        if command == "EVAL" and rest[1].endswith("owner"):
            self.written += rest[4::2]
            self.batches += 1
        if command == "SET":
            self.led.append(rest[0])
        return []


def used(conversation: str, name: str = "") -> Used:
    """One use of a conversation."""
    return Used("owner", conversation, name, "1.0", 0)


async def soon() -> None:
    """As long as it takes until a new conversation is written."""
    await asyncio.sleep(SOON_SECONDS * 3)


async def test_a_new_conversation_takes_along_none_that_was_written_of_late() -> None:
    """So the lists cost the store the same however many conversations are in use."""
    asked = Asked()
    listing = Listing(asked, 0)
    listing.note(used("old"))
    await soon()
    for name in ("old", "new", "old"):
        listing.note(used(name))
    await soon()
    assert asked.written == ["old", "new"]
    await listing.aclose()
    assert asked.written == ["old", "new", "old"]


async def test_what_the_store_did_not_take_is_written_after_the_next_turn() -> None:
    """It was never on the lists, so it is as new as before."""
    asked = Asked()
    listing = Listing(asked, 0)
    asked.away = True
    listing.note(used("one"))
    await soon()
    asked.away = False
    listing.note(used("one"))
    await soon()
    assert asked.written == ["one"]
    await listing.aclose()


async def test_a_name_leads_to_what_was_used_last_by_it() -> None:
    """Also where an older conversation of the same name waits for the sweep when a newer one is written."""
    asked = Asked()
    listing = Listing(asked, 0)
    listing.note(used("old", "mine"))
    await soon()
    listing.note(used("old", "mine"))
    listing.note(used("new", "mine"))
    await soon()
    await listing.settle()
    assert asked.written == ["old", "new", "old"]
    assert asked.led == ["old", "new"]
    listing.note(used("old", "mine"))
    await listing.aclose()
    assert asked.led == ["old", "new", "old"]


async def test_a_list_that_was_emptied_gets_its_lifetime_again(store: RedisStore, url: str) -> None:
    """Whoever emptied it: a list without a lifetime would stay for ever."""
    owner = uuid.uuid4().hex
    index, listing, other = keys.owner_index(owner), Listing(store.ask, 3600), Listing(store.ask, 3600)
    for name in ("a" * 48, "b" * 48):
        while not keys_of(url, index):  # a busy store may not take the first write
            listing.note(Used(owner, name, "", "1.0", 3600))
            await listing.settle()
        if name[0] == "a":
            await other.drop(owner, name, "", 1.0)
            assert keys_of(url, index) == []
    await listing.aclose()
    await other.aclose()
    assert 3500 < await store.ask("TTL", index) <= 3600


async def test_what_expires_is_counted_once(store: RedisStore) -> None:
    """By the worker that takes it off the list of all; a deletion by hand is no expiry."""
    told: list[Event] = []
    owner, listings = uuid.uuid4().hex, [Listing(store.ask, 3600, told.append) for _ in range(3)]
    for name, at, listing in zip("cde", ("1.0", "2.0", "90000.0"), listings, strict=True):
        listing.note(Used(owner, name * 48, "", at, 3600))
        await listing.settle()
        if name == "d":
            await listing.drop(owner, name * 48, "", 3.0)
            told.clear()
    assert [type(event) for event in told] == [ConversationsExpired]
    last = Listing(store.ask, 3600, told.append)
    last.note(Used(owner, "f" * 48, "", "90001.0", 3600))
    await last.settle()
    assert len(told) == 1
    for listing in (*listings, last):
        await listing.aclose()


@pytest.fixture
async def other(url: str, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """The store of another worker, on the same server."""
    opened = RedisStore(url, Codec(), ttl_seconds=3600, recall_timeout_seconds=5, record_timeout_seconds=5)
    yield opened
    await opened.close()


async def test_what_another_worker_deleted_is_not_listed_again(
    store: RedisStore, other: RedisStore, tenant: str
) -> None:
    """Though this worker still has to write the conversation's last use, by up to a minute later."""
    said = dialogue(6)
    conversation = await store.record(turn_of(tenant, said[:4], created_at=10.0))
    assert await listed(store, tenant) == [conversation]
    await store.record(turn_of(tenant, said, known=4, conversation=conversation, created_at=20.0))
    assert await other.forget(conversation, tenant, "", 30.0)
    assert await listed(store, tenant) == []
    assert conversation not in [identifier for _, identifier in await store.listing.newest(None, 10_000)]


async def test_what_was_deleted_and_begins_again_is_listed_at_once(
    store: RedisStore, other: RedisStore, tenant: str
) -> None:
    """Through a worker that did not delete it, and listed it a moment ago."""
    conversation = await store.record(turn_of(tenant, dialogue(2), created_at=10.0))
    assert await listed(store, tenant) == [conversation]
    assert await other.forget(conversation, tenant, "", 20.0)
    assert await store.record(turn_of(tenant, dialogue(2), created_at=30.0)) == conversation
    for _ in range(100):  # less than the minute between two sweeps
        if await listed(other, tenant) == [conversation]:
            break
        await soon()
    else:
        raise AssertionError("It is not listed.")


async def test_a_fork_that_was_deleted_and_begins_again_is_listed_at_once(
    store: RedisStore, other: RedisStore, tenant: str
) -> None:
    """Though the store has its beginning, as that of the conversation from which it forks."""
    said = dialogue(4)
    edited = [*said[:2], *dialogue(2, "edited")]
    await store.record(turn_of(tenant, said, created_at=10.0))
    fork = await store.record(turn_of(tenant, edited, known=2, created_at=20.0))
    assert fork in await listed(store, tenant)
    assert await other.forget(fork, tenant, "", 30.0)
    assert await store.record(turn_of(tenant, edited, known=2, created_at=40.0)) == fork
    for _ in range(100):
        if fork in await listed(other, tenant):
            break
        await soon()
    else:
        raise AssertionError("It is not listed.")


async def test_a_recorded_turn_can_be_found_by_any_other_process(
    store: RedisStore, other: RedisStore, tenant: str
) -> None:
    """On the list and by its name, at once: the process that recorded it may die before its next turn."""
    first = await store.record(turn_of(tenant, dialogue(2), created_at=10.0, name="mine"))
    assert (await listed(other, tenant), await other.find_by_name(tenant, "mine")) == ([first], first)
    second = await store.record(turn_of(tenant, dialogue(2, "edited"), created_at=20.0, name="mine"))
    assert (await listed(other, tenant), await other.find_by_name(tenant, "mine")) == ([second, first], second)


async def test_a_name_that_led_elsewhere_leads_here_when_its_turn_is_recorded(
    store: RedisStore, other: RedisStore, tenant: str
) -> None:
    """Though this process listed the conversation a moment ago."""
    said = dialogue(4)
    one = await store.record(turn_of(tenant, said[:2], created_at=10.0, name="mine"))
    await store.record(turn_of(tenant, dialogue(2, "edited"), created_at=20.0, name="mine"))
    await store.record(turn_of(tenant, said, known=2, conversation=one, created_at=30.0, name="mine"))
    assert await other.find_by_name(tenant, "mine") == one


async def test_turns_that_begin_at_once_are_listed_together() -> None:
    """Each waits for one write at most that began before it, and none for the pause between writes."""
    asked = Asked()
    listing = Listing(asked, 0)
    begun = [Used("owner", f"c{number}", f"n{number}", "1.0", 0, is_new=True) for number in range(50)]
    await asyncio.gather(*map(listing.add, begun))
    assert asked.written == [used.conversation for used in begun]
    assert asked.batches == 2
    await listing.aclose()


async def test_a_store_that_lists_nothing_holds_no_turn() -> None:
    """Its turn is recorded all the same."""
    asked = Asked()
    asked.away = True
    listing = Listing(asked, 0)
    await listing.add(Used("owner", "new", "mine", "1.0", 0, is_new=True))
    asked.away = False
    await listing.add(used("new", "mine"))
    assert (asked.written, asked.led) == (["new"], ["new"])
    await listing.aclose()
