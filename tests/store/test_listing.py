"""The lists of conversations: a new one is on them soon, one that is in use is written once a minute and not more."""

from __future__ import annotations

import asyncio
import uuid

from proxy.core.errors import StoreUnavailable
from proxy.store import keys
from proxy.store.conversations import RedisStore
from proxy.store.listing import SOON_SECONDS, Listing, Used
from tests.store.conftest import keys_of


class Asked:
    """A store that notes what it is asked to write."""

    def __init__(self) -> None:
        self.away = False
        self.written: list[str] = []
        self.led: list[str] = []

    async def __call__(self, command: str, index: str, *rest: str) -> list[object]:
        """One command."""
        if self.away:
            raise StoreUnavailable("away")
        if command == "ZADD" and index.endswith("owner"):
            self.written += rest[1::2]
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
            await other.drop(owner, name, "")
            assert keys_of(url, index) == []
    await listing.aclose()
    await other.aclose()
    assert 3500 < await store.ask("TTL", index) <= 3600
