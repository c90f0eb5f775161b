"""Faults of real processes and disks: nothing acknowledged is lost, the fault is told, and it ends by itself.

``cases.txt`` names the tests of the other faults. Clocks cannot be moved here without moving the machine's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx
import pytest
import redis

from tests.e2e.test_command import CONFIG, WAIT_SECONDS, Machine, Tidemark, command_of, descendants, machine
from tests.e2e.test_dying_store import has_written, valkeys
from tests.request.faithful import is_summary_call
from tests.request.talk import history, long, user
from tests.support.scripted import Answer, Received, says
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until
from tidemark.store.embedded.server import EmbeddedValkey

__all__ = ["machine"]
pytestmark = pytest.mark.chaos

TALKS, TURNS = 6, 8
HANGING = CONFIG.replace("strategy: extractive", "strategy: llm, summarizer: {{model: small, timeout_seconds: 3}}")
SUMMARY = "## Summary\nThe user asked one question after the other, and each was answered."


def turn(tidemark: Tidemark, talk: str, text: str) -> httpx.Response:
    """One turn of a stored history."""
    headers = {
        "authorization": f"Bearer {tidemark.key}",
        "x-tidemark-conversation": talk,
        "x-tidemark-history": "stored",
    }
    return httpx.post(
        f"{tidemark.url}/v1/chat/completions",
        json={"model": "small", "messages": [user(text)], "max_tokens": 100},
        headers=headers,
        timeout=WAIT_SECONDS,
        verify=NO_TLS,
    )


def store_is(tidemark: Tidemark, state: str) -> bool:
    """Whether readiness says this of the store."""
    return bool(tidemark.get("/health/readiness").json()["store"] == state)


def questions(tidemark: Tidemark, talk: str) -> list[str]:
    """What a stored conversation has of the user.

    Each worker learns by itself that the store is back, so one may say 503 a moment after another one was ready.
    """
    path = f"/tidemark/conversations/{talk}/export"
    answers: list[httpx.Response] = []

    def is_answered() -> bool:
        answers.append(tidemark.get(path))
        return answers[-1].status_code != 503

    wait_until(is_answered, WAIT_SECONDS)
    got = answers[-1]
    assert got.status_code == 200, (talk, got.text)
    return [str(line) for line in got.text.splitlines() if '"role": "user"' in line or '"role":"user"' in line]


class Talkers:
    """Clients that talk at once, each in its conversation. Mutable: what was acknowledged, and what was refused."""

    def __init__(self, tidemark: Tidemark, first: int = 0) -> None:
        self._tidemark, self._first = tidemark, first
        self.acknowledged: dict[str, list[str]] = {f"talk{number}": [] for number in range(TALKS)}
        self.refused: list[int] = []
        self._threads = [threading.Thread(target=self._talk, args=(talk,)) for talk in self.acknowledged]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(2 * WAIT_SECONDS)
            assert not thread.is_alive(), "a client still waits"

    def count(self) -> int:
        """How many turns were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    def _talk(self, talk: str) -> None:
        for number in range(self._first, self._first + TURNS):
            text = f"Question {number} of {talk}."
            with suppress(httpx.TransportError):  # a worker that dies closes its connections
                answer = turn(self._tidemark, talk, text)
                if answer.status_code == 200:
                    self.acknowledged[talk].append(text)
                else:
                    self.refused.append(answer.status_code)


def assert_whole(tidemark: Tidemark, talkers: Talkers) -> None:
    """Each acknowledged question stands in its conversation, once, and in its order."""
    for talk, texts in talkers.acknowledged.items():
        stored = questions(tidemark, talk) if texts else []
        places = [next((place for place, line in enumerate(stored) if text in line), -1) for text in texts]
        assert -1 not in places, (talk, texts, stored)
        assert places == sorted(set(places))
        assert all(sum(text in line for line in stored) == 1 for text in texts)


def test_killing_the_store_again_and_again_loses_nothing_that_was_written(machine: Machine) -> None:
    """Lost: at most two seconds, which a slow disk has not taken. Told: 503, the log. Whole: when it is up again."""
    tidemark = machine.small("--workers", "2")
    wait_until(lambda: store_is(tidemark, "ok"), WAIT_SECONDS)
    with Talkers(tidemark) as before:
        pass
    wait_until(lambda: has_written(machine), WAIT_SECONDS)
    with Talkers(tidemark, TURNS) as talkers:
        for least in (TALKS, 3 * TALKS):
            wait_until(lambda least=least: talkers.count() + len(talkers.refused) >= least, WAIT_SECONDS)
            for pid in valkeys(tidemark):
                os.kill(pid, signal.SIGKILL)
    wait_until(lambda: store_is(tidemark, "ok"), WAIT_SECONDS)
    assert set(talkers.refused) <= {409, 503}
    assert before.count() == TALKS * TURNS
    assert_whole(tidemark, before)
    for talk in talkers.acknowledged:
        wait_until(lambda talk=talk: turn(tidemark, talk, "Are you whole?").status_code == 200, WAIT_SECONDS)
        stored = questions(tidemark, talk)
        assert len(stored) == len(set(stored)), "a turn is stored once"
    assert any("SIGKILL" in line["event"] for line in tidemark.lines)
    assert tidemark.end() == 0


def test_killing_a_worker_loses_no_acknowledged_turn(machine: Machine) -> None:
    """Lost: answers under way. Told: closed connections, 409 while the dead worker's lease lasts. Whole: in 10 s."""
    tidemark = machine.small("--workers", "2")
    wait_until(lambda: store_is(tidemark, "ok"), WAIT_SECONDS)
    with Talkers(tidemark) as talkers:
        wait_until(lambda: talkers.count() >= TALKS, WAIT_SECONDS)
        workers = [pid for pid in descendants(tidemark.process.pid) if "spawn_main" in command_of(pid)]
        os.kill(workers[0], signal.SIGKILL)
    assert set(talkers.refused) <= {409, 503}
    assert_whole(tidemark, talkers)
    for talk in talkers.acknowledged:
        wait_until(lambda talk=talk: turn(tidemark, talk, "Are you whole?").status_code == 200, WAIT_SECONDS)
    assert_whole(tidemark, talkers)
    assert tidemark.end() == 0


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[Path]:
    """The folder of the data, on a disk of 4 MB of its own."""
    data = machine.folder / "data"
    data.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(data)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield data
    machine.stack.close()
    subprocess.run(["/bin/umount", "-l", str(data)], check=True)


def test_a_full_disk_refuses_turns_and_takes_them_again(machine: Machine, small_disk: Path) -> None:
    """Lost: nothing acknowledged. Told: 503 or 507, readiness. Whole: when there is space, without a restart."""
    tidemark = machine.small()
    wait_until(lambda: store_is(tidemark, "ok"), WAIT_SECONDS)
    assert turn(tidemark, "talk", "Question 0 of talk.").status_code == 200
    wait_until(lambda: has_written(machine), WAIT_SECONDS)
    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(os.urandom(4096))
    answers = [turn(tidemark, "talk", f"Refused {number}. {long(number, 600)}") for number in range(6)]
    statuses = [answer.status_code for answer in answers]
    assert {503, 507} & set(statuses), statuses
    taken = statuses.count(200)
    assert tidemark.chat([user("Without the store?")]).status_code == 200
    wait_until(lambda: store_is(tidemark, "degraded"), WAIT_SECONDS)
    filler.unlink()
    wait_until(lambda: turn(tidemark, "talk", "Question 1 of talk.").status_code == 200, WAIT_SECONDS)
    wait_until(lambda: store_is(tidemark, "ok"), WAIT_SECONDS)
    stored = "\n".join(questions(tidemark, "talk"))
    assert "Question 0 of talk." in stored
    assert stored.count("Refused") >= taken
    assert "Question 1 of talk." in stored
    assert tidemark.end() == 0


def test_a_store_that_evicts_truncates_no_request_in_silence(machine: Machine, tmp_path: Path) -> None:
    """Lost: whole conversations, as its policy says. Told: readiness, and the gap of each request. Whole: never."""
    with EmbeddedValkey(tmp_path / "evicting") as server, redis.Redis.from_url(server.url) as admin:
        admin.config_set("maxmemory", int(admin.info("memory")["used_memory"]) + 400_000)
        admin.config_set("maxmemory-policy", "allkeys-lru")
        tidemark = machine.serve("--config", str(machine.config(CONFIG)), environ={"TIDEMARK_STORE_URL": server.url})
        silent: list[str] = []
        for number in range(200):
            talk, first = f"talk{number % 20}", number < 20
            answer = turn(tidemark, talk, f"Question {number}. {long(number, 1500)}")
            if answer.status_code != 200:
                continue
            sent = [said for said in machine.upstream.last.messages if said["role"] == "user"]
            is_gap = "x-tidemark-history-gap" in answer.headers or "x-tidemark-warning" in answer.headers
            whole = len(sent) > number // 20 or answer.headers.get("x-tidemark-action") == "compacted"
            if not first and not whole and not is_gap:
                silent.append(f"{talk}: {len(sent)} of {number // 20 + 1} {dict(answer.headers)}")
        assert int(admin.info("stats")["evicted_keys"]) > 0
        assert silent == []
        assert "allkeys-lru" in tidemark.get("/health/readiness").json()["eviction"]
        assert tidemark.end() == 0


def test_an_emptied_store_is_told_to_each_conversation_that_was_in_it(machine: Machine, tmp_path: Path) -> None:
    """Lost: all of it, as an operator asked. Told: the next turn of each, readiness. Whole: after that turn.

    One worker: another one would know only of those conversations of which it has had a turn.
    """
    with EmbeddedValkey(tmp_path / "emptied") as server, redis.Redis.from_url(server.url) as admin:
        environ = {"TIDEMARK_STORE_URL": server.url}
        tidemark = machine.serve("--config", str(machine.config(CONFIG)), environ=environ)
        with Talkers(tidemark) as talkers:
            pass
        assert talkers.count() == TALKS * TURNS
        admin.flushall()
        told = [turn(tidemark, talk, "What did I say?") for talk in talkers.acknowledged]
        assert [answer.status_code for answer in told] == [200] * TALKS
        assert all("x-tidemark-history-gap" in answer.headers for answer in told)
        wait_until(lambda: "replaced" in tidemark.get("/health/readiness").json(), WAIT_SECONDS)
        for talk in talkers.acknowledged:
            assert len(questions(tidemark, talk)) == 1
        assert tidemark.end() == 0


def test_a_summarizer_that_hangs_delays_a_request_once_and_loses_nothing(machine: Machine) -> None:
    """Lost: nothing. Told: the strategy in the headers, the log. Whole: when the model answers again."""
    hangs = threading.Event()
    hangs.set()
    ordinary = machine.upstream.script

    def script(received: Received) -> Answer:
        if not is_summary_call(received):
            return ordinary(received)
        return Answer([b"{}"], before_headers=30) if hangs.is_set() else says(SUMMARY)(received)

    machine.upstream.script = script
    tidemark = machine.serve("--workers", "2", "--config", str(machine.config(HANGING)))
    said = [*history(20, words=100), user("And then?")]
    first = tidemark.chat(said)
    assert (first.status_code, first.headers["x-tidemark-strategy"]) == (200, "extractive")
    sent = str(machine.upstream.last.messages)
    assert said[-1]["content"] in sent
    hangs.clear()
    other = [user("Something else altogether."), *said[1:]]
    wait_until(lambda: tidemark.chat(other).headers.get("x-tidemark-strategy") == "llm", WAIT_SECONDS)
    assert tidemark.end() == 0
