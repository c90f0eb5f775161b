"""Several processes on one store: one summary for all of them, and none is missed when a process dies over it."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from tests.e2e.test_command import WAIT_SECONDS, Machine, Tidemark, command_of, descendants, machine
from tests.request.compaction.test_background_summaries import replying, slowly
from tests.request.compaction.test_summarizers import is_summary_call
from tests.request.talk import Said, assistant, long, user
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until
from tidemark.compaction.leases import LEASE_SECONDS

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}/v1"}}
    model_info: {{max_input_tokens: 4000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: llm, retention_tokens: 200, min_tokens: 300, wait_seconds: 50}}
"""


def full() -> list[Said]:
    """A conversation that has just passed its high water."""
    said: list[Said] = []
    for number in range(35):
        said += [user(long(2 * number)), assistant(long(2 * number + 1))]
    return [*said, user("And now?")]


def test_two_hundred_equal_requests_to_four_workers_make_one_summary(machine: Machine) -> None:
    """Exactly one call of the summarizer, and the same bytes to the upstream each time.

    Where the machine is so busy that the store answers a request after more than its time, that request is planned
    without the store, says so, and calls no summarizer.
    """
    machine.upstream.script = replying(slowly(0.5))
    tidemark = machine.serve("--config", str(machine.config(CONFIG)), "--workers", "4")
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 4, WAIT_SECONDS)
    said = full()
    with ThreadPoolExecutor(100) as pool:
        got = list(pool.map(lambda _: tidemark.chat(said), range(200)))
    assert {one.status_code for one in got} == {200}
    shared = [one for one in got if one.headers["x-tidemark-store"] == "ok"]
    assert len(shared) > 100
    assert {one.headers["x-tidemark-strategy"] for one in shared} == {"llm"}
    forwarded = [one for one in machine.upstream.received if not is_summary_call(one)]
    assert len(forwarded) == 200
    assert len(machine.upstream.received) == 201
    ((_, most),) = Counter([one.body for one in forwarded]).most_common(1)
    assert most >= len(shared)
    assert tidemark.end() == 0


def test_a_process_that_dies_over_a_summary_is_replaced_within_its_lease(machine: Machine, store_url: str) -> None:
    """``kill -9`` in the middle of it: another process makes the summary as soon as the lease is over."""
    config, shared = str(machine.config(CONFIG)), {"TIDEMARK_STORE_URL": store_url, "TIDEMARK_SECRET": "s" * 40}
    first, second = (
        machine.serve("--config", config, environ={**shared, "TIDEMARK_DATA_DIR": str(machine.folder / name)})
        for name in ("one", "two")
    )
    machine.upstream.script = replying(slowly(60))
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(first.chat, full())
        wait_until(lambda: any(map(is_summary_call, machine.upstream.received)), WAIT_SECONDS)
        first.process.send_signal(signal.SIGKILL)
        died = time.monotonic()
        machine.upstream.script = replying(slowly(0))
        got = second.chat(full())
        waited = time.monotonic() - died
        assert lost.exception() is not None
    assert got.headers["x-tidemark-action"] == "compacted"
    assert got.headers["x-tidemark-strategy"] == "llm"
    assert len([one for one in machine.upstream.received if is_summary_call(one)]) == 2
    assert waited < 2 * LEASE_SECONDS


def workers_of(tidemark: Tidemark) -> list[int]:
    """The processes that serve."""
    return [pid for pid in descendants(tidemark.process.pid) if "spawn_main" in command_of(pid)]


def kill(pids: Iterable[int]) -> None:
    """``kill -9``; one that is gone already is."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_replaced_worker_has_the_configuration_of_the_start(machine: Machine) -> None:
    """Two configurations in one server would answer by chance; that the file is broken since concerns no worker."""
    tidemark = machine.small("--workers", "2")
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 2, WAIT_SECONDS)
    machine.config().write_text("model_list: [")
    before = workers_of(tidemark)
    kill(before[:1])
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 3, WAIT_SECONDS)
    kill(before[1:])
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 4, WAIT_SECONDS)
    assert not set(before) & set(workers_of(tidemark))
    assert tidemark.chat([user("Hello.")]).status_code == 200
    assert tidemark.end() == 0


def test_without_a_worker_connections_are_refused_until_one_is_ready(machine: Machine) -> None:
    """A client is told at once; workers that die in a row are started later each time, and then serve again."""
    tidemark = machine.small("--workers", "2")
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 2, WAIT_SECONDS)

    def is_refused() -> bool:
        kill(workers_of(tidemark))
        with suppress(httpx.ReadError, httpx.RemoteProtocolError, httpx.ReadTimeout):
            try:
                httpx.get(f"{tidemark.url}/health/liveness", timeout=1, verify=NO_TLS)
            except httpx.ConnectError:
                return "another starts in 2.0 s" in tidemark.text
        return False

    wait_until(is_refused, WAIT_SECONDS)
    assert all(f"another starts in {pause} s" in tidemark.text for pause in ("0.0", "0.5", "1.0"))

    def is_served() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{tidemark.url}/health/liveness", timeout=5, verify=NO_TLS).status_code == 200
        return False

    wait_until(is_served, WAIT_SECONDS)
    assert tidemark.end() == 0
