"""The store fails and comes back: header and readiness say so, and what it leaves behind holds nobody up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.request.conftest import Bench, Client
from tests.request.talk import user
from tests.support.waiting import wait_until
from tidemark.compaction.leases import LEASE_SECONDS
from tidemark.store.embedded.server import EmbeddedValkey

STORED = {"conversation": "talk", "history": "stored"}
FROZEN_SECONDS = 5.0
BACK_SECONDS = 4.0
"""It takes less than one; it took nine while each failure doubled the time that the store was left alone."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store of the test's own, which it may stop."""
    with EmbeddedValkey(tmp_path / "own") as running:
        yield running
        if running.pid is not None:
            os.kill(running.pid, signal.SIGCONT)


@pytest.fixture
def client(bench: Bench, server: EmbeddedValkey, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark on that store."""
    return bench.client(request.node.nodeid, store=server.url)


def store_header(client: Client, text: str = "Hello.") -> Any:
    """What a request's header says of the store."""
    got = client.chat([user(text)])
    assert got.status_code == 200
    return got.headers["x-tidemark-store"]


def readiness(client: Client) -> Any:
    """What readiness says of the store."""
    return client.http.get("/health/readiness").json()


def full(admin: Any) -> None:
    """No memory is left."""
    admin.config_set("maxmemory", 1)


def copied(admin: Any) -> None:
    """It is a replica of a server that is not there: it reads, and writes nothing."""
    admin.execute_command("REPLICAOF", "127.0.0.1", "1")


def mended(admin: Any) -> None:
    """Neither any more."""
    admin.config_set("maxmemory", 0)
    admin.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize("refuse", [full, copied])
def test_a_store_that_refuses_to_write_is_degraded_until_it_writes(
    client: Client, server: EmbeddedValkey, refuse: Any
) -> None:
    """It answers every lookup meanwhile, so only writes can tell; nothing is asked for its recovery."""
    assert store_header(client) == "ok"
    with redis.Redis.from_url(server.url) as admin:
        refuse(admin)
        assert readiness(client)["store"] == "degraded"
        assert "refuses to write" in readiness(client)["detail"]
        assert store_header(client, "Another.") == "degraded"
        assert client.chat([user("Stored?")], **STORED).status_code == 503
        mended(admin)
    assert readiness(client) == {"status": "ready", "store": "ok"}
    assert store_header(client, "And now?") == "ok"


def test_a_store_of_a_newer_schema_is_left_alone_while_requests_flow(client: Client, server: EmbeddedValkey) -> None:
    """A newer version came meanwhile and was taken back: within a second nothing is written, later all goes on."""
    assert store_header(client) == "ok"
    with redis.Redis.from_url(server.url) as admin:
        admin.set("tm:schema", 99)
        wait_until(lambda: store_header(client) == "degraded")
        before = {name for name in admin.scan_iter() if name != b"tm:probe"}
        assert store_header(client, "Another.") == "degraded"
        assert "newer version" in readiness(client)["detail"]
        refused = client.chat([user("Stored?")], **STORED)
        assert refused.status_code == 503
        assert "newer version" in refused.json()["error"]["message"]
        assert {name for name in admin.scan_iter() if name != b"tm:probe"} == before
        admin.set("tm:schema", 1)
    wait_until(lambda: store_header(client, "And now?") == "ok")
    assert readiness(client) == {"status": "ready", "store": "ok"}


def test_a_refusal_is_forgotten_without_a_request(client: Client, server: EmbeddedValkey) -> None:
    """The first request after it is told the truth: the store was probed meanwhile."""
    with redis.Redis.from_url(server.url) as admin:
        full(admin)
        assert store_header(client) == "degraded"
        mended(admin)
        wait_until(lambda: bool(admin.exists("tm:probe")))
    wait_until(lambda: store_header(client) == "ok")


def test_a_store_that_was_frozen_is_used_again_soon(client: Client, server: EmbeddedValkey) -> None:
    """However long it was away, and stored history goes on with it: no turn that nobody holds is in its way."""
    assert client.chat([user("One.")], **STORED).status_code == 200
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    until = time.monotonic() + FROZEN_SECONDS
    refused: list[httpx.Response] = []
    while time.monotonic() < until:
        refused.append(client.chat([user("Two.")], **STORED))
        assert store_header(client) == "degraded"
        time.sleep(0.1)
    assert {one.status_code for one in refused} == {503}
    os.kill(server.pid, signal.SIGCONT)
    wait_until(lambda: client.chat([user("Two.")], **STORED).status_code == 200, BACK_SECONDS)
    assert store_header(client, "And a talk of its own?") == "ok"
    assert BACK_SECONDS < LEASE_SECONDS
