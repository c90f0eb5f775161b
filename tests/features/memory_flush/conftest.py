"""A queue on a server of the test's own, and what the consumers' tests share."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tidemark.core.ports import FlushEntry
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey

TENANT = "ab" * 16


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The store belongs to asyncio."""
    return "asyncio"


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server that can be stopped, killed and started again on its data."""
    with EmbeddedValkey(tmp_path / "store") as server:
        yield server


@pytest.fixture
async def store(valkey: EmbeddedValkey, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """A store with time to spare."""
    opened = RedisStore(valkey.url, Codec(), ttl_seconds=86_400, recall_timeout_seconds=5, record_timeout_seconds=5)
    yield opened
    await opened.close()


@pytest.fixture
def queue(store: RedisStore) -> RedisFlushQueue:
    """An empty queue."""
    return RedisFlushQueue(store.ask, Codec(), ttl_seconds=86_400, bounds=QueueBounds(1000, 10**8))


def entry(number: int, conversation: str = "c1", at: float | None = None) -> FlushEntry:
    """An entry whose document is as short as it may be."""
    key = f"{number:032x}"
    told = {"key": key, "conversation": conversation, "number": number, "summary": {}, "messages": []}
    return FlushEntry(key, TENANT, conversation, json.dumps(told).encode(), time.time() if at is None else at)
