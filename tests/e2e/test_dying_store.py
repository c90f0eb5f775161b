"""The embedded store dies under a running command: it is started again with its data, and requests flow meanwhile."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.e2e.test_command import WAIT_SECONDS, Machine, Tidemark, all_gone, command_of, descendants, machine
from tests.request.talk import assistant, user
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

__all__ = ["machine"]
pytestmark = pytest.mark.e2e


def valkeys(tidemark: Tidemark) -> list[int]:
    """The store's processes; none while it is away."""
    return [pid for pid in descendants(tidemark.process.pid) if "valkey-server" in command_of(pid)]


def all_ended(tidemark: Tidemark, pids: list[int]) -> bool:
    """Whether none of these serves any more."""
    return not set(pids) & set(valkeys(tidemark))


def has_written(machine: Machine) -> bool:
    """Whether all that the store has acknowledged is in its file.

    Valkey writes before it answers; while an earlier write is on its way to the disk, up to two seconds later.
    """
    with redis.Redis(unix_socket_path=str(machine.folder / "data/store/valkey.sock")) as store:
        facts: Any = store.info("persistence")
    return bool(facts["aof_buffer_length"] == facts["aof_pending_bio_fsync"] == 0)


def ask(tidemark: Tidemark, text: str) -> httpx.Response:
    """One turn of stored history."""
    headers = {"authorization": f"Bearer {tidemark.key}"}
    headers |= {"x-tidemark-conversation": "talk", "x-tidemark-history": "stored"}
    body = {"model": "small", "messages": [user(text)], "max_tokens": 100}
    return httpx.post(
        tidemark.url + "/v1/chat/completions", json=body, headers=headers, timeout=WAIT_SECONDS, verify=NO_TLS
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_store_is_started_again_with_its_data(machine: Machine, workers: str) -> None:
    """By the command that owns it, whoever serves; its end is logged with the cause, and told by readiness."""
    tidemark = machine.small("--workers", workers)
    wait_until(lambda: tidemark.get("/health/readiness").json()["store"] == "ok", WAIT_SECONDS)
    assert ask(tidemark, "My name is Ada.").status_code == 200
    wait_until(lambda: has_written(machine), WAIT_SECONDS)
    (first,) = valkeys(tidemark)
    os.kill(first, signal.SIGKILL)
    said = [user("Another talk.")]
    assert tidemark.chat(said).status_code == 200
    wait_until(lambda: ask(tidemark, "Who am I?").status_code == 200, WAIT_SECONDS)
    assert machine.upstream.last.messages[0]["content"] == "My name is Ada."
    assert valkeys(tidemark) not in ([], [first])
    assert any("SIGKILL" in line["event"] for line in tidemark.lines)
    said += [assistant("Hello there."), user("And now?")]
    # The other worker may try the store again a moment later than the one that answered above.
    wait_until(lambda: tidemark.chat(said).headers["x-tidemark-store"] == "ok", WAIT_SECONDS)
    children = descendants(tidemark.process.pid)
    assert tidemark.end() == 0
    wait_until(all_gone(children), WAIT_SECONDS)
    assert tidemark.text.count("The embedded store ended") == 1


def test_a_store_that_dies_again_and_again_is_started_later_each_time(machine: Machine) -> None:
    """A cause that a start does not mend must not keep the machine busy; the pauses are in the log."""
    tidemark = machine.small()
    for _ in range(3):
        wait_until(lambda: bool(valkeys(tidemark)), WAIT_SECONDS)
        wait_until(lambda: tidemark.get("/health/readiness").json()["store"] == "ok", WAIT_SECONDS)
        killed = valkeys(tidemark)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until(partial(all_ended, tidemark, killed), WAIT_SECONDS)
    wait_until(lambda: tidemark.text.count("The embedded store ended") == 3, WAIT_SECONDS)
    assert all(f"started again in {pause} s" in tidemark.text for pause in ("0.0", "0.5", "1.0"))
    assert tidemark.end() == 0


def damaged(machine: Machine) -> Path:
    """End a command that has stored a turn, and leave 64 zero bytes at the end of its file, as a power loss may."""
    tidemark = machine.small()
    wait_until(lambda: tidemark.get("/health/readiness").json()["store"] == "ok", WAIT_SECONDS)
    assert ask(tidemark, "My name is Ada.").status_code == 200
    wait_until(lambda: has_written(machine), WAIT_SECONDS)
    assert tidemark.end() == 0
    (file,) = (machine.folder / "data/store/appendonlydir").glob("*.incr.aof")
    with file.open("ab") as output:
        output.write(b"\0" * 64)
    return file


def test_a_damaged_file_is_mended_at_the_start(machine: Machine) -> None:
    """What was stored is there, and log, readiness and doctor name the folder with the file as it was."""
    content = damaged(machine).read_bytes()
    tidemark = machine.small()
    wait_until(lambda: tidemark.get("/health/readiness").json()["store"] == "ok", WAIT_SECONDS)
    assert ask(tidemark, "Who am I?").status_code == 200
    assert machine.upstream.last.messages[0]["content"] == "My name is Ada."
    (name,) = tidemark.get("/health/readiness").json()["damaged_store_files"]
    (kept,) = (machine.folder / "data/store" / name).glob("*.incr.aof")
    assert kept.read_bytes() == content
    assert any(name in line["event"] for line in tidemark.lines)
    assert name in machine.run("doctor", "--offline", "--config", str(machine.config())).stdout.decode()
    assert tidemark.end() == 0


def test_a_damaged_file_is_repaired_without_a_running_store(machine: Machine) -> None:
    """By the command that says so; all others name it, and change nothing."""
    content = damaged(machine).read_bytes()
    for command in (("store", "check"), ("doctor", "--offline")):
        got = machine.run(*command)
        assert got.returncode == 1
        assert b"store check --repair" in got.stdout + got.stderr
    repaired = machine.run("store", "check", "--repair")
    assert (repaired.returncode, b"0 cannot be read" in repaired.stdout) == (0, True), repaired
    (kept,) = (machine.folder / "data/store").glob("damaged-*/*.incr.aof")
    assert kept.read_bytes() == content
    assert machine.run("store", "check").returncode == 0
