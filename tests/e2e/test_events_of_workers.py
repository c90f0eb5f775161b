"""Live events over several processes: whoever listens to one of them hears of all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.test_command import WAIT_SECONDS, Machine, machine
from tests.e2e.test_workers import CONFIG
from tests.features.live_events.test_live_events import Listener
from tests.request.talk import user
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

__all__ = ["machine"]
pytestmark = pytest.mark.e2e


def test_a_listener_of_one_worker_hears_of_all_workers_conversations(machine: Machine) -> None:
    """And the end of the server ends the stream."""
    tidemark = machine.serve("--config", str(machine.config(CONFIG)), "--workers", "3")
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 3, WAIT_SECONDS)
    with httpx.Client(base_url=tidemark.url, verify=NO_TLS) as http:
        listeners = [Listener(http, tidemark.key) for _ in range(4)]
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda number: tidemark.chat([user(f"Number {number}.")]), range(30)))
        ids = {answer.headers["x-tidemark-conversation"] for answer in answers}
        for listener in listeners:
            wait_until(lambda who=listener: {event[2]["conversation"] for event in who.events} == ids, WAIT_SECONDS)
        assert tidemark.end() == 0
        for listener in listeners:
            assert listener.ended.wait(WAIT_SECONDS)
