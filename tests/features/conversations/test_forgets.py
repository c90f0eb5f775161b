"""``DeletionHook``: who keeps something of a conversation elsewhere hears of its end, before the store forgets it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.features.conversations.readers import reader
from tests.store.turns import assistant, turn_of, user
from tidemark.core.errors import StoreError
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore


class Elsewhere:
    """Keeps things of conversations, and may be unable to let go of them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.stuck = False

    async def forget(self, tenant: str, conversation: str) -> None:
        """Delete all that is kept."""
        if self.stuck:
            raise StoreError("The file cannot be deleted.")
        self.told.append((tenant, conversation))


@pytest.fixture
def anyio_backend() -> str:
    """The store belongs to asyncio."""
    return "asyncio"


@pytest.fixture
async def store(store_url: str, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """A store."""
    opened = RedisStore(store_url, Codec(), ttl_seconds=100, recall_timeout_seconds=5, record_timeout_seconds=5)
    yield opened
    await opened.close()


async def test_who_keeps_something_is_told_and_may_refuse(store: RedisStore) -> None:
    """Where something is left, the conversation is, too, and can be forgotten later."""
    elsewhere = Elsewhere()
    reading = reader(store, hooks=[elsewhere.forget])
    id_ = await store.record(turn_of("forgetful", [user("one"), assistant("two")]))
    elsewhere.stuck = True
    with pytest.raises(StoreError):
        await reading.delete(id_, None)
    assert await store.conversation(id_) is not None
    elsewhere.stuck = False
    assert await reading.delete(id_, None) == id_
    assert elsewhere.told == [("forgetful", id_)]
    assert await store.conversation(id_) is None
