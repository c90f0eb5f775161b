"""Servers for the store's tests: the embedded one, and one that believes to be a cluster."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.store.turns import Client
from tests.support.clusters import SLOTS, free_ports, port_before_bus
from tests.support.rights import LOGIN, documented_rights, make_user, refusals
from tests.support.waiting import wait_until
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded import server as embedded
from tidemark.store.embedded.server import EmbeddedValkey

DAY_SECONDS = 86_400.0
if "STORE_SERVER" in os.environ:  # make test-servers
    vars(embedded)["server_program"] = lambda: Path(os.environ["STORE_SERVER"])


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The store belongs to asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """The embedded server, one for all tests; tenants keep them apart."""
    with EmbeddedValkey(tmp_path_factory.mktemp("store")) as running, redis.Redis.from_url(running.url) as admin:
        make_user(admin, documented_rights())
        yield running
        assert refusals(admin) == []


def is_older(url: str, version: tuple[int, ...]) -> bool:
    """Whether a server is of an earlier version of Redis."""
    with redis.Redis.from_url(url.replace("redis+cluster", "redis")) as asked:
        return tuple(map(int, asked.info("server")["redis_version"].split("."))) < version


def keys_of(url: str, pattern: str) -> list[bytes]:
    """The names of keys, which only an administrator may list."""
    with redis.Redis.from_url(url.replace("redis+cluster", "redis").replace(LOGIN, "")) as admin:
        names: Any = admin.keys(pattern)
        return list(names)


def cluster_ports() -> tuple[int, list[str]]:
    """A free port, and the option for a free one of the cluster's bus.

    Servers before 7 have no such option: their bus is at a port 10,000 higher.
    """
    if "STORE_SERVER" not in os.environ:
        port, bus = free_ports(2)
        return port, ["--cluster-port", str(bus)]
    return port_before_bus(10_000), []


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node: it refuses every script and pipeline that reaches into two slots."""
    port, bus = cluster_ports()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes", *bus]
    folder = tmp_path_factory.mktemp("cluster")
    with EmbeddedValkey(folder, options=options) as running, redis.Redis.from_url(running.url) as node:
        node.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        wait_until(lambda: b"cluster_state:ok" in node.execute_command("CLUSTER", "INFO"))
        make_user(node, documented_rights())
        yield f"redis+cluster://{LOGIN}127.0.0.1:{port}"
        assert refusals(node) == []


@pytest.fixture(params=["single", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """Every test that asks for a store runs on one server and on a cluster."""
    if request.param == "cluster":
        clustered: str = request.getfixturevalue("cluster_url")
        return clustered
    single: EmbeddedValkey = request.getfixturevalue("server")
    return single.url.replace("unix://", f"unix://{LOGIN}")


@pytest.fixture
async def store(url: str, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """A store with time to spare: the tests' machine may be slow."""
    opened = RedisStore(
        url,
        Codec(),
        ttl_seconds=30 * DAY_SECONDS,
        recall_timeout_seconds=5,
        record_timeout_seconds=5,
    )
    yield opened
    await opened.close()


@pytest.fixture
async def alone(server: EmbeddedValkey, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """The same on the single server only, for what is measured there."""
    opened = RedisStore(
        server.url, Codec(), ttl_seconds=30 * DAY_SECONDS, recall_timeout_seconds=5, record_timeout_seconds=5
    )
    yield opened
    await opened.close()


@pytest.fixture
def admin(server: EmbeddedValkey) -> Iterator[redis.Redis]:
    """A look behind the single server's scenes."""
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test has."""
    return uuid.uuid4().hex


@pytest.fixture
def client(store: RedisStore, tenant: str) -> Client:
    """A client of the store."""
    return Client(store, tenant)


@pytest.fixture
def short_folder(tmp_path: Path) -> Path:
    """A folder for a server of the test's own."""
    return tmp_path / "data"
