"""A cluster of three primaries for the tests of this folder, and stores on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.store.codec import Codec
from proxy.store.conversations import RedisStore
from tests.support.clusters import Cluster, running_cluster


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The store belongs to asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries without replicas."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def open_store(url: str, *, library: bool = False) -> RedisStore:
    """A store with the time limits that users have."""
    return RedisStore(url, Codec(), ttl_seconds=3600, library=library)
