"""Servers for the store's tests: the embedded one, and one that believes to be a cluster."""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from proxy.store.codec import Codec
from proxy.store.conversations import RedisStore
from proxy.store.embedded.server import EmbeddedValkey
from tests.store.turns import Client

DAY_SECONDS = 86_400.0


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The store belongs to asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """The embedded server, one for all tests; tenants keep them apart."""
    with EmbeddedValkey(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node: it refuses every script and pipeline that reaches into two slots."""
    with socket.socket() as probe, socket.socket() as bus:
        probe.bind(("127.0.0.1", 0))
        bus.bind(("127.0.0.1", 0))
        port, bus_port = probe.getsockname()[1], bus.getsockname()[1]
    options = [
        "--port",
        str(port),
        "--cluster-port",
        str(bus_port),
        "--bind",
        "127.0.0.1",
        "--cluster-enabled",
        "yes",
    ]
    with EmbeddedValkey(tmp_path_factory.mktemp("cluster"), options=options) as running:
        with redis.Redis.from_url(running.url) as node:
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in node.execute_command("CLUSTER", "INFO"):
                pass
        yield f"redis+cluster://127.0.0.1:{port}"


@pytest.fixture(params=["single", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """Every test that asks for a store runs on one server and on a cluster."""
    if request.param == "cluster":
        clustered: str = request.getfixturevalue("cluster_url")
        return clustered
    single: EmbeddedValkey = request.getfixturevalue("server")
    return single.url


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
