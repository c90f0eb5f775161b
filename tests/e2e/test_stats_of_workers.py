"""The figures of requests over several processes: each worker's come in, also when it ends or its store went away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.test_command import WAIT_SECONDS, Machine, machine
from tests.e2e.test_workers import CONFIG
from tests.request.talk import user
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

__all__ = ["machine"]
pytestmark = pytest.mark.e2e


def test_the_figures_of_all_workers_are_one_sum_and_survive_a_restart(machine: Machine) -> None:
    """Four processes serve forty requests; whichever is asked knows of all a moment later, and so does the next."""
    config = str(machine.config(CONFIG))
    tidemark = machine.serve("--config", config, "--workers", "4")
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 4, WAIT_SECONDS)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda number: tidemark.chat([user(f"Number {number}.")]), range(40)))
    assert {answer.status_code for answer in answers} == {200}

    def requests(port_url: str) -> int:
        told = httpx.get(f"{port_url}/tidemark/stats", verify=NO_TLS, timeout=30).json()
        return int(told["requests"])

    wait_until(lambda: requests(tidemark.url) == 40, WAIT_SECONDS)
    tidemark.chat([user("The last one, a moment before the end.")])
    assert tidemark.end() == 0
    again = machine.serve("--config", config)
    assert requests(again.url) == 41
