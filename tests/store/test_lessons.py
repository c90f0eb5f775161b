"""What overflows taught is stored by credential, and one that cannot be read hides no other."""

from __future__ import annotations

import pytest

from tests.support.sealing import TAG, XorCipher
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.lessons import RedisLearnedWindows

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("codec", [Codec(), Codec(XorCipher())], ids=["plain", "sealed"])
async def test_a_lesson_is_read_as_it_was_written(store: RedisStore, tenant: str, codec: Codec) -> None:
    """The newest of each name, of this credential only."""
    windows = RedisLearnedWindows(store.ask, codec, ttl_seconds=60)
    await windows.keep_lesson(tenant, "model", b"old")
    await windows.keep_lesson(tenant, "model", b"new")
    assert await windows.lessons(tenant) == [b"new"]
    assert await windows.lessons("another") == []


async def test_a_lesson_that_was_not_sealed_is_left_out(store: RedisStore, tenant: str) -> None:
    """The others are read, and all that is stored is sealed."""
    await RedisLearnedWindows(store.ask, Codec(), ttl_seconds=60).keep_lesson(tenant, "plain", b"plain")
    windows = RedisLearnedWindows(store.ask, Codec(XorCipher()), ttl_seconds=60)
    await windows.keep_lesson(tenant, "model", b"new")
    assert await windows.lessons(tenant) == [b"new"]
    assert (await store.ask("HGET", keys.lessons(tenant), "model")).startswith(TAG)
