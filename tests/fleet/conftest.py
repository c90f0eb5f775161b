"""A cluster of three primaries for the tests of this folder, and stores on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clusters import Cluster, running_cluster
from tests.support.rights import documented_rights
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

PATIENCE_SECONDS = 10.0


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The store belongs to asyncio."""
    return "asyncio"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries without replicas, whose user has the documented rights and no others."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        running.admit(documented_rights("cluster"))
        yield running
        assert running.refusals() == []


def open_store(url: str, *, library: bool = False) -> RedisStore:
    """A store with the time limits that users have."""
    return RedisStore(url, Codec(), ttl_seconds=3600, library=library)


def open_patient_store(url: str, *, library: bool = False) -> RedisStore:
    """A store that waits longer, for tests whose machine may be busy: what they test is no outage."""
    return RedisStore(
        url,
        Codec(),
        ttl_seconds=3600,
        recall_timeout_seconds=PATIENCE_SECONDS,
        record_timeout_seconds=PATIENCE_SECONDS,
        library=library,
    )
