"""The metrics: what Prometheus reads, counted from the same facts as the log, and bounded."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from tidemark.core.events import (
    CompactionStarted,
    ConversationCompacted,
    RequestServed,
    StoreDegraded,
    SummaryFailed,
    SummaryPrepared,
    TurnStored,
)
from tidemark.core.receipt import KindCount
from tidemark.core.report import Report, Usage
from tidemark.core.traffic import OTHER
from tidemark.telemetry.gathering import REQUEST_SECONDS
from tidemark.telemetry.metrics import MAX_MODELS, Metrics
from tidemark.telemetry.state import WorkerState, count_pool_threads

SERVED = RequestServed(
    "/v1/chat/completions",
    200,
    "complete",
    0.75,
    first_byte_seconds=0.03,
    model="gpt-4o",
    report=Report("c", "t", 1000, "compacted", 900, 400, overhead_seconds=0.002),
    usage=Usage(410, 300, 20),
)

WORKERS = """
import asyncio, sys
from pathlib import Path
from tidemark.core.events import RequestServed
from tidemark.telemetry import metrics

metrics.HAND_OVER_SECONDS = 0.05
served = RequestServed("/v1/x", 200, "complete", 0.1, model="m")

def told(worker):
    page = worker.render()[0].decode()
    lines = [line for line in page.splitlines() if line.startswith("tidemark_requests_total{")]
    print(lines[0].rpartition(" ")[2] if lines else "0.0")

async def main():
    one, other = metrics.Metrics(Path(sys.argv[1])), metrics.Metrics(Path(sys.argv[1]))
    one(served)
    one(served)
    told(other)
    await asyncio.sleep(0.5)
    told(other)
    one(served)
    one.hand_over()
    told(other)

asyncio.run(main())
"""
"""Two workers' metrics on one folder, and what the second tells of the first."""


STATE = """
import os, signal, sys
from pathlib import Path
from tidemark.telemetry.metrics import Metrics
from tidemark.telemetry.state import WorkerState

metrics = Metrics(Path(sys.argv[1]), lambda: WorkerState(streams=int(sys.argv[2])))
page = metrics.render()[0].decode()
print(next(line for line in page.splitlines() if line.startswith("tidemark_streams_in_flight")), flush=True)
if sys.argv[3] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""
"""A worker with so many streams, and the gauge of all workers that it shows."""


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """One sample as Prometheus would read it."""
    return metrics.registry.get_sample_value(name, labels)


def test_a_request_is_counted_with_how_it_ended() -> None:
    """By model, status, action and outcome."""
    metrics = Metrics()
    metrics(SERVED)
    metrics(SERVED)
    labels = {"model": "gpt-4o", "status": "200", "action": "compacted", "outcome": "complete"}
    assert value(metrics, "tidemark_requests_total", **labels) == 2


def test_times_fall_into_buckets() -> None:
    """Each in seconds, in a bucket that is not the last."""
    metrics = Metrics()
    metrics(SERVED)
    assert value(metrics, "tidemark_request_seconds_bucket", model="gpt-4o", le="1.0") == 1
    assert value(metrics, "tidemark_first_byte_seconds_bucket", model="gpt-4o", le="0.05") == 1
    assert value(metrics, "tidemark_overhead_seconds_bucket", le="0.0025") == 1


def test_tokens_are_summed_ours_and_the_upstreams() -> None:
    """Cached ones apart, so that the hit rate of the provider's cache can be drawn."""
    metrics = Metrics()
    metrics(SERVED)
    found = {
        name: value(metrics, f"tidemark_{name}_total", model="gpt-4o")
        for name in (
            "tokens_before",
            "tokens_after",
            "upstream_prompt_tokens",
            "upstream_cached_prompt_tokens",
            "upstream_completion_tokens",
        )
    }
    assert list(found.values()) == [900, 400, 410, 300, 20]


def test_compactions_failures_and_the_store_are_counted() -> None:
    """Each fact once; facts that say nothing to count are passed over."""
    metrics = Metrics()
    metrics(CompactionStarted("c", "m", "llm", 3, 100))
    receipt = (KindCount("rules", 7, 5, 1), KindCount("names", 3, 3), KindCount("identifiers", 0, 0, 0, ("ABC-2",)))
    metrics(ConversationCompacted("c", "m", "extractive", 3, 100, 20, 0.2, receipt=receipt))
    metrics(SummaryFailed("c", "m", "llm", "timeout", "deterministic", 60.0))
    metrics(StoreDegraded("recall", "timeout"))
    metrics(TurnStored("c", 2, 100, 0.001))
    assert value(metrics, "tidemark_compactions_total", strategy="extractive") == 1
    assert value(metrics, "tidemark_compaction_seconds_sum", strategy="extractive") == 0.2
    assert value(metrics, "tidemark_summary_failures_total", strategy="llm", model="m") == 1
    survivals = ("kept", "shortened", "dropped")
    rules = [value(metrics, "tidemark_summary_details_total", kind="rules", survival=each) for each in survivals]
    assert rules == [5, 1, 1]
    assert value(metrics, "tidemark_summary_details_total", kind="identifiers", survival="unsupported") == 1
    assert value(metrics, "tidemark_store_degraded_total", operation="recall") == 1


@given(st.lists(st.sampled_from(REQUEST_SECONDS) | st.floats(0, 1e4)))
def test_times_that_were_gathered_fall_where_each_would_have_fallen(times: list[float]) -> None:
    """Also one that equals a bound, and one above all of them."""
    metrics, registry = Metrics(), CollectorRegistry()
    usual = Histogram("tidemark_request_seconds", "", ["model"], registry=registry, buckets=REQUEST_SECONDS)
    for seconds in times:
        metrics(RequestServed("/v1/x", 200, "complete", seconds, model="m"))
        usual.labels("m").observe(seconds)
    for bound in (*map(str, REQUEST_SECONDS), "+Inf"):
        name, labels = "tidemark_request_seconds_bucket", {"model": "m", "le": bound}
        assert value(metrics, name, **labels) == registry.get_sample_value(name, labels)
    total = registry.get_sample_value("tidemark_request_seconds_sum", {"model": "m"})
    assert value(metrics, "tidemark_request_seconds_sum", model="m") == pytest.approx(total)


def test_nothing_is_counted_twice_however_often_it_is_read() -> None:
    """What was handed over is gathered anew."""
    metrics = Metrics()
    for number in range(1, 4):
        metrics(SERVED)
        for _ in range(2):
            assert f'tidemark_tokens_before_total{{model="gpt-4o"}} {number * 900}.0\n'.encode() in metrics.render()[0]


def test_workers_hand_over_by_themselves(tmp_path: Path) -> None:
    """A scrape of another worker tells of it a moment later; at the end everything is handed over at once."""
    done = subprocess.run(  # prometheus_client is told at its import
        [sys.executable, "-c", WORKERS, str(tmp_path)],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == ([b"0.0", b"2.0", b"3.0"], b"")


def test_clients_cannot_fill_the_memory_with_model_names() -> None:
    """Names beyond the bound share one label."""
    metrics = Metrics()
    for number in range(MAX_MODELS + 50):
        metrics(RequestServed("/v1/x", 200, "complete", 0.1, model=f"m{number}"))
    assert value(metrics, "tidemark_request_seconds_count", model=OTHER) == 50
    assert value(metrics, "tidemark_request_seconds_count", model=f"m{MAX_MODELS - 1}") == 1


NOT_SERVED = {
    "rejected": RequestServed("/v1/x", 404, "rejected", 0.1),
    "refused": RequestServed("/v1/x", 404, "refused", 0.1, 0.1),
    "failed": RequestServed("/v1/x", 502, "error", 0.1),
    "the client left before an answer": RequestServed("/v1/x", 499, "disconnected", 0.1),
    "and after a comment": RequestServed("/v1/x", 200, "disconnected", 0.1),
    "and while it was refused": RequestServed("/v1/x", 404, "disconnected", 0.1, 0.1),
    "a command": RequestServed("/v1/x", 200, "complete", 0.1, 0.1, report=Report("", "t", 1000)),
    "and the client left": RequestServed("/v1/x", 200, "disconnected", 0.1, 0.1, report=Report("", "t", 1000)),
}


@pytest.mark.parametrize("ending", NOT_SERVED.values(), ids=NOT_SERVED.keys())
def test_a_model_that_nobody_serves_takes_no_label(ending: RequestServed) -> None:
    """Else made-up names could take them all before a real one comes."""
    metrics = Metrics()
    for number in range(MAX_MODELS):
        metrics(replace(ending, model=f"made-up-{number}"))
    metrics(SERVED)
    assert value(metrics, "tidemark_request_seconds_count", model="gpt-4o") == 1
    assert value(metrics, "tidemark_request_seconds_count", model=OTHER) == MAX_MODELS


def test_a_model_whose_answer_had_begun_takes_a_label() -> None:
    """However it ended: cut short, or with a client that left."""
    metrics = Metrics()
    metrics(RequestServed("/v1/x", 200, "incomplete", 0.1, model="cut short"))
    metrics(RequestServed("/v1/x", 200, "disconnected", 0.1, 0.1, model="left"))
    assert value(metrics, "tidemark_request_seconds_count", model="cut short") == 1
    assert value(metrics, "tidemark_request_seconds_count", model="left") == 1


@given(st.text(st.characters(exclude_categories=())), st.integers(-5, 10**12))
def test_whatever_a_client_or_an_upstream_sends_can_be_rendered(model: str, tokens: int) -> None:
    """Half characters in a name, counts below 0: the page stays readable to Prometheus' own parser."""
    metrics = Metrics()
    metrics(RequestServed("/v1/x", 200, "complete", 0.1, model=model, usage=Usage(tokens)))
    page, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    names = {family.name for family in text_string_to_metric_families(page.decode())}
    assert {"tidemark_requests", "tidemark_request_seconds"} <= names


def test_two_apps_in_one_process_do_not_share_their_numbers() -> None:
    """Each has a registry of its own."""
    first, second = Metrics(), Metrics()
    first(SERVED)
    assert value(second, "tidemark_request_seconds_count", model="gpt-4o") is None


def test_a_summarizers_time_and_failures_are_counted_by_model() -> None:
    """Swapping in a prepared summary takes no summarizer's time."""
    metrics = Metrics()
    metrics(SummaryPrepared("c", "m", "llm", 3, 20, 2.0))
    metrics(ConversationCompacted("c", "m", "llm", 3, 100, 20, 0.0, trigger="swap"))
    metrics(SummaryFailed("c", "m", "llm", "timeout", "deterministic", 60.0))
    assert value(metrics, "tidemark_summarizer_seconds_count", strategy="llm", model="m") == 2
    assert value(metrics, "tidemark_summarizer_seconds_sum", strategy="llm", model="m") == 62.0
    assert value(metrics, "tidemark_summary_failures_total", strategy="llm", model="m") == 1


def test_models_whose_summaries_fail_take_half_of_the_labels_at_most() -> None:
    """None of them has answered yet, so their names may be made up."""
    metrics = Metrics()
    for number in range(MAX_MODELS):
        metrics(SummaryFailed("c", f"made-up-{number}", "llm", "timeout", "deterministic", 1.0))
    assert value(metrics, "tidemark_summary_failures_total", strategy="llm", model=OTHER) == MAX_MODELS // 2
    metrics(SERVED)
    assert value(metrics, "tidemark_request_seconds_count", model="gpt-4o") == 1


def test_tokens_saved_are_those_of_requests_that_got_smaller() -> None:
    """An answer of our own forwards nothing and saves nothing."""
    metrics = Metrics()
    metrics(SERVED)
    metrics(replace(SERVED, report=Report("c", "t", 1000, "none", 500, 500)))
    metrics(replace(SERVED, report=Report("c", "t", 1000, "none", 500, 0)))
    assert value(metrics, "tidemark_tokens_saved_total", model="gpt-4o") == 500


async def sampled(states: list[WorkerState]) -> Metrics:
    """Metrics that sampled a worker in these states, a moment apart."""
    now = states[0]
    metrics = Metrics(read_state=lambda: now)
    for now in states:  # noqa: B007 - the metrics read it
        metrics.render()
        await asyncio.sleep(0.01)
    return metrics


def test_a_workers_state_is_sampled_for_each_scrape() -> None:
    """The newest one counts, and an outage counts from one sample to the next."""
    busy = WorkerState(streams=3, preparations=2, open_breakers=1, is_store_well=False, tasks=7, pool_threads=5)
    metrics = asyncio.run(sampled([WorkerState(), busy, busy]))
    assert value(metrics, "tidemark_streams_in_flight") == 3
    assert value(metrics, "tidemark_preparations_in_flight") == 2
    assert value(metrics, "tidemark_summarizers_resting") == 1
    assert value(metrics, "tidemark_tasks") == 7
    assert value(metrics, "tidemark_pool_threads") == 5
    seconds = value(metrics, "tidemark_store_degraded_seconds_total")
    assert seconds is not None
    assert seconds > 0.01
    metrics.state.end()
    assert value(metrics, "tidemark_streams_in_flight") == 0


def test_a_killed_workers_streams_leave_the_sum(tmp_path: Path) -> None:
    """It could not say that it ended; the next scrape sees that its process is gone."""
    shown: list[str] = []
    running: list[subprocess.Popen[bytes]] = []
    for streams, end in ((3, "living"), (4, "killed"), (1, "living")):
        worker = subprocess.Popen(
            [sys.executable, "-c", STATE, str(tmp_path), str(streams), end],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        running.append(worker)
        assert worker.stdout is not None
        shown.append(worker.stdout.readline().decode().split()[-1])
        if end == "killed":
            worker.wait(60)
    for worker in running:
        worker.communicate(timeout=60)
    assert shown == ["3.0", "7.0", "4.0"]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_threads_of_an_event_loops_pool_are_counted(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """By which a soak tells them from threads that leak."""

    async def start_one() -> int:
        before = count_pool_threads()
        await asyncio.to_thread(lambda: None)
        return count_pool_threads() - before

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(start_one()) == 1
