"""While a store has a fault, requests flow: the header says degraded, readiness and the log name the fault's mend."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.request.conftest import Bench, Client
from tests.request.talk import user
from tests.support import faulty_stores as faulty
from tests.support.faulty_stores import FaultyStore
from tests.support.waiting import wait_until
from tidemark.telemetry.logging import configure

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of the log since the test began."""
    stream, root = io.StringIO(), logging.getLogger()
    handlers, level, before = root.handlers[:], root.level, structlog.get_config()
    configure("info", json=True, stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.configure(**before)


def readiness(client: Client) -> Any:
    """What readiness says."""
    return client.http.get("/health/readiness").json()


@pytest.mark.parametrize(
    ("fault", "words", "mend"),
    [
        (faulty.wrong_password, "does not accept the login", "Correct user and password in store.url"),
        (faulty.no_password, "does not accept the login", "Correct user and password in store.url"),
        (faulty.replica, "refuses to write: it is a read-only replica", "Name the primary in store.url"),
        (faulty.full, "refuses to write: it is full", "Raise its maxmemory"),
        (faulty.without_rights, "refuses to write: its user has not all rights", "docs/operations.md"),
        (faulty.covered_by_half, "does not serve every slot", "--cluster fix"),
        (faulty.of_another_name, "for another name", "Name the server in store.url as its certificate does"),
        (faulty.of_unknown_authority, "cannot be verified", "ssl_ca_certs"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_requests_flow_while_a_store_has_a_fault(
    bench: Bench, lines: Lines, tmp_path: Path, fault: FaultyStore, *, words: str, mend: str
) -> None:
    """And all that a person reads names the mend, with one line in the log and no password."""
    with fault(tmp_path / "faulty") as url:
        client, line = _degraded_by(bench, lines, url)
        state = readiness(client)
        assert (state["status"], state["store"]) == ("ready", "degraded")
        assert words in state["detail"]
        assert mend in state["detail"]
        assert words in line["reason"]
        assert mend in line["reason"]
        assert not any(secret in json.dumps([lines(), state]) for secret in ("wrong-0815", faulty.PASSWORD))


def _degraded_by(bench: Bench, lines: Lines, url: str) -> tuple[Client, dict[str, Any]]:
    """A client of a Tidemark whose requests flow without the store, and the one line that tells of it.

    On a busy machine a store can be too slow before it can be wrong. Then another Tidemark is started.
    """
    for _ in range(5):
        before = len(lines())
        client = bench.client("key", store=url)
        answers = [client.chat([user(f"Conversation {number}.")]) for number in range(12)]
        assert {answer.status_code for answer in answers} == {200}
        assert "degraded" in {answer.headers["x-tidemark-store"] for answer in answers}
        (line,) = [line for line in lines()[before:] if line["event"] == "store.degraded"]
        if "TimeoutError" not in line["reason"] and "TimeoutError" not in readiness(client)["detail"]:
            return client, line
    pytest.fail("the store was too slow each time")


def test_a_fault_is_told_before_the_first_request(bench: Bench, lines: Lines, tmp_path: Path) -> None:
    """The store is looked at when the worker starts."""
    with faulty.full(tmp_path / "faulty") as url:
        bench.client("key", store=url)
        wait_until(lambda: [line for line in lines() if line["event"] == "store.degraded"])
        (line,) = [line for line in lines() if line["event"] == "store.degraded"]
        assert "it is full" in line["reason"]


def test_a_store_that_may_evict_conversations_is_told_by_readiness_and_a_warning(bench: Bench, tmp_path: Path) -> None:
    """It works, so it is not degraded; a policy that keeps all is told nothing of."""
    with faulty.evicting(tmp_path / "faulty") as url:
        client = bench.client("key", store=url)
        wait_until(lambda: "eviction" in readiness(client))
        state = readiness(client)
        assert state["store"] == "ok"
        assert "volatile-lru" in state["eviction"]
        assert "noeviction" in state["eviction"]
        assert any("may evict conversations" in warning for warning in bench.warnings)
        assert client.chat([user("Hello.")]).headers["x-tidemark-store"] == "ok"
    assert "eviction" not in readiness(bench.client("another"))
