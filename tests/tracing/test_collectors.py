"""A collector that is gone or silent costs a request nothing, and a missing extra is said in one line."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.request.conftest import benched
from tests.request.talk import user
from tests.tracing.collector import Collector, collecting
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.tracing import start_tracing

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXPORT_THREADS = ("OtelBatchSpan", "tidemark-traces")


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store for the tests here."""
    with EmbeddedValkey(tmp_path_factory.mktemp("store")) as store:
        yield store.url


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that takes spans and never answers."""
    with collecting() as collector:
        collector.is_silent = True
        monkeypatch.setenv(ENDPOINT, collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        yield collector


def test_a_silent_collector_holds_up_neither_requests_nor_the_end(
    collector: Collector, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has ended while the collector still has its first export open."""
    monkeypatch.setattr("tidemark.tracing.tracing.CLOSE_SECONDS", 0.2)
    with benched(store_url, tmp_path) as bench:
        client = bench.client("silent")
        assert client.chat([user("Hi")]).status_code == 200
        assert collector.asked.wait(20)
        assert client.chat([user("Hi again")]).status_code == 200
    assert not collector.freed.is_set()
    assert collector.spans == []
    collector.freed.set()
    wait_for_export_threads()


def test_a_collector_that_is_gone_is_no_fault_of_requests(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens there."""
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setattr("tidemark.tracing.tracing.CLOSE_SECONDS", 0.2)
    with benched(store_url, tmp_path) as bench:
        client = bench.client("gone")
        assert [client.chat([user("Hi")]).status_code for _ in range(3)] == [200, 200, 200]
        assert bench.warnings == []
    wait_for_export_threads()


def test_no_retry_goes_on_after_the_end(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spans for a collector that is gone are given up, and a pause before a retry is not waited for."""
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    monkeypatch.setattr("tidemark.tracing.tracing.CLOSE_SECONDS", 0.0)
    with benched(store_url, tmp_path) as bench:
        assert bench.client("retried").chat([user("Hi")]).status_code == 200
    wait_for_export_threads()
    assert "already shutdown, ignoring call" not in caplog.text


def wait_for_export_threads() -> None:
    """Wait until no thread exports spans any more. One that goes on would disturb the tests after these."""
    for thread in threading.enumerate():
        if thread.name.startswith(EXPORT_THREADS):
            thread.join(20)
            assert not thread.is_alive(), thread.name


@pytest.fixture
def unimported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not imported the extra yet."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "opentelemetry" or name.startswith("tidemark.tracing."):
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("unimported")
def test_a_missing_extra_is_one_warning_that_names_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes on without traces."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    warnings: list[str] = []
    assert start_tracing(warnings.append, {ENDPOINT: "http://127.0.0.1:4318"}) is None
    assert len(warnings) == 1
    assert ENDPOINT in warnings[0]
    assert "Install tidemark-proxy[otel]" in warnings[0]


@pytest.mark.usefixtures("unimported")
@pytest.mark.parametrize(
    "environ",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "TRUE"},
        {ENDPOINT: "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_imported_where_no_traces_are_asked_for(environ: dict[str, str]) -> None:
    """Nothing is warned of either."""
    warnings: list[str] = []
    assert start_tracing(warnings.append, environ) is None
    assert warnings == []
    assert "opentelemetry" not in sys.modules


def test_a_protocol_that_is_not_spoken_is_a_warning() -> None:
    """The collector's other port speaks it."""
    warnings: list[str] = []
    environ = {ENDPOINT: "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    tracing = start_tracing(warnings.append, environ)
    assert tracing is not None
    asyncio.run(tracing.aclose())
    wait_for_export_threads()
    assert warnings == [
        "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, but Tidemark exports traces by http/protobuf (port 4318) only."
    ]
