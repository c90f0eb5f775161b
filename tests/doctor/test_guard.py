"""Rules of the examination as a whole: no check stops another, and all end within its time."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tidemark.core.errors import StoreUnavailable
from tidemark.doctor.examination import examine
from tidemark.doctor.findings import Finding
from tidemark.doctor.guard import Guard, in_thread

FINE = [Finding("fine", "ok", "it works")]


async def fine() -> list[Finding]:
    """A check that finds nothing wrong."""
    return FINE


async def broken() -> list[Finding]:
    """A check with a mistake of its own."""
    raise ZeroDivisionError("no")


async def refused() -> list[Finding]:
    """A check that an error of ours ends."""
    raise StoreUnavailable("The store is away.")


def never() -> list[Finding]:
    """A check that blocks its thread for ever."""
    threading.Event().wait()
    return FINE


def guarded(seconds: float = 0.05) -> Guard:
    """A guard with little time."""
    return Guard(asyncio.get_running_loop().time() + seconds, seconds)


def test_a_check_that_raises_is_a_finding_that_says_so() -> None:
    """With what it raised; the others answer."""

    async def run() -> tuple[list[Finding], ...]:
        guard = guarded(60)
        return await asyncio.gather(
            guard.run("broken", broken()), guard.run("fine", fine()), guard.run("refused", refused())
        )

    (failed,), found, (told,) = asyncio.run(run())
    assert (failed.check, failed.status) == ("broken", "error")
    assert "ZeroDivisionError: no" in failed.detail
    assert "report" in failed.mend
    assert found == FINE
    assert (told.status, told.detail) == ("error", "The store is away.")


def test_a_check_that_blocks_is_given_up_and_the_others_answer() -> None:
    """In a thread that nothing waits for."""

    async def run() -> tuple[list[Finding], ...]:
        guard = guarded()
        return await asyncio.gather(guard.run("blocked", in_thread(never)), guard.run("fine", in_thread(lambda: FINE)))

    (late,), found = asyncio.run(run())
    assert (late.check, late.status) == ("blocked", "error")
    assert "not examined to the end" in late.detail
    assert found == FINE


def test_a_blocked_thread_does_not_keep_the_program() -> None:
    """The end of the process does not wait for a file system that is silent."""
    program = (
        "import asyncio, threading\n"
        "from tidemark.doctor.guard import Guard, in_thread\n"
        "async def run():\n"
        "    guard = Guard(asyncio.get_running_loop().time(), 0)\n"
        "    return await guard.run('blocked', in_thread(threading.Event().wait))\n"
        "print(asyncio.run(run())[0].status)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "error\n"


def test_what_a_thread_raises_is_raised_where_it_is_awaited() -> None:
    """As if it had been called there."""

    def fail() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        asyncio.run(in_thread(fail))


def test_silent_servers_neither_outlast_the_examination_nor_hide_the_rest(tmp_path: Path) -> None:
    """The store, two upstreams and their summarizers say nothing: each is told, and so is what works."""
    path = tmp_path / "tidemark.yaml"
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        entry = '{{model_name: {0}, litellm_params: {{model: openai/m, api_base: "http://{1}/v1", api_key: sk-1}}}}'
        entries = "".join(f"  - {entry.format(name, place)}\n" for name in ("one", "two"))
        path.write_text(f"store: {{url: 'redis://{place}/0'}}\nmodel_list:\n{entries}")
        environ = {"HOME": str(tmp_path), "TIDEMARK_DATA_DIR": str(tmp_path / "data")}
        findings = asyncio.run(examine(path, environ, lambda _: None, seconds=0.5))
    late = [finding.check for finding in findings if "not examined to the end" in finding.detail]
    assert {"store", "upstream one", "upstream two", "summarizer hybrid"} <= set(late)
    assert {finding.check for finding in findings if finding.status == "ok"} >= {"configuration", "data folder"}


def test_a_data_folder_that_the_system_refuses_is_an_error_of_its_own(tmp_path: Path) -> None:
    """Its words are the system's, and the other checks answer."""
    environ = {"HOME": str(tmp_path), "TIDEMARK_DATA_DIR": str(tmp_path / ("x" * 300))}
    findings = asyncio.run(examine(None, environ, lambda _: None, offline=True))
    (finding,) = [finding for finding in findings if finding.check == "data folder"]
    assert finding.status == "error"
    assert "File name too long" in finding.detail
    assert {finding.check for finding in findings} >= {"store", "vocabularies", "configuration"}
