"""The command under clients that take all they can get: few descriptors, many connections, and an end in between."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException

import httpx
import pytest

from tests.e2e.test_command import CONFIG, WAIT_SECONDS, Machine, Tidemark, machine
from tests.request.talk import long, user
from tests.support.scripted import streamed
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

FEW = 64
LIMITED = (
    "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); sys.argv[0] = 'tidemark'"
)
"""Python that goes on as ``python -m tidemark`` with so many descriptors, its soft and its hard limit."""


def limited(machine: Machine, *arguments: str) -> Tidemark:
    """Start it with few descriptors."""
    log = machine.folder / "limited"
    code = LIMITED.format(FEW) + "; runpy.run_module('tidemark', run_name='__main__')"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", "--port", "0", "--config", str(machine.config(CONFIG)), *arguments],
            env=machine.environ,
            cwd=machine.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    machine.stack.enter_context(process)
    machine.stack.callback(process.terminate)
    return Tidemark(process, log)


def address(tidemark: Tidemark) -> tuple[str, int]:
    """Where it listens."""
    url = httpx.URL(tidemark.url)
    return url.host, int(url.port or 0)


def test_idle_connections_beyond_the_descriptors_do_not_keep_it_from_serving(machine: Machine) -> None:
    """64 descriptors, 120 connections that say nothing: every request is answered, and the log names the cause."""
    tidemark = limited(machine)
    with ExitStack() as stack:
        for _ in range(120):
            stack.enter_context(socket.create_connection(address(tidemark), timeout=WAIT_SECONDS))
        got = [tidemark.chat([user("hi")]) for _ in range(17)]
        assert [one.status_code for one in got] == [200] * 17
        assert {one.headers["x-tidemark-store"] for one in got} == {"ok"}
    assert any("All 12 connections of this worker are in use" in line["event"] for line in tidemark.lines)
    assert "server.max_connections is" not in tidemark.text
    assert tidemark.end() == 0
    assert "Traceback" not in tidemark.text


def test_a_bound_that_the_descriptors_do_not_reach_is_told_at_the_start(machine: Machine) -> None:
    """Who set it would else wait for connections that never come."""
    config = machine.folder / "bound.yaml"
    config.write_text((CONFIG + "server: {{max_connections: 4000}}\n").format(base=machine.upstream_url))
    tidemark = limited(machine, "--config", str(config))
    assert tidemark.chat([user("hi")]).status_code == 200
    assert f"server.max_connections is 4000, but only {FEW} files may be open" in tidemark.text
    assert tidemark.end() == 0


def test_more_requests_at_once_than_connections_are_answered_in_words(machine: Machine) -> None:
    """Each is served or told to come again; none is reset, and none fails for want of a descriptor."""
    tidemark = limited(machine)
    machine.upstream.script = lambda _: streamed(long(1, 10), pace=0.05)
    body = {"model": "small", "messages": [user("hi")], "stream": True}

    def ask(_: int) -> httpx.Response:
        return httpx.post(tidemark.url + "/v1/chat/completions", json=body, timeout=WAIT_SECONDS, verify=NO_TLS)

    with ThreadPoolExecutor(60) as pool:
        got = list(pool.map(ask, range(60)))
    assert {one.status_code for one in got} == {200, 503}
    assert all("[DONE]" in one.text for one in got if one.status_code == 200)
    assert {one.json()["error"]["code"] for one in got if one.status_code == 503} == {"server_busy"}
    assert tidemark.end() == 0


def test_the_bounds_are_those_of_the_configuration_in_every_worker(machine: Machine) -> None:
    """They reach the processes that are started, not only the one that reads the file."""
    config = machine.config(CONFIG + "server: {{max_connections: 4, head_seconds: 0.5, workers: 2}}\n")
    tidemark = machine.serve("--config", str(config))
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection(address(tidemark), timeout=WAIT_SECONDS))
        wait_until(lambda: "All 4 connections of this worker are in use" in tidemark.text, WAIT_SECONDS)
    with socket.create_connection(address(tidemark), timeout=WAIT_SECONDS) as half:
        half.sendall(b"GET / HTTP/1.1\r\n")
        assert half.recv(65_536).startswith(b"HTTP/1.1 408 ")
    assert tidemark.end() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_who_comes_after_the_signal_is_refused_at_once(machine: Machine, workers: int) -> None:
    """With open streams, which end whole: no new client hangs, and none is reset."""
    tidemark = machine.small("--workers", str(workers))
    wait_until(
        lambda: sum("Application startup complete" in line["event"] for line in tidemark.lines) == workers, WAIT_SECONDS
    )
    machine.upstream.script = lambda _: streamed(long(1, 40), pace=0.2)
    body = {"model": "small", "messages": [user("hi")], "stream": True}

    def stream(_: int) -> str:
        return httpx.post(tidemark.url + "/v1/chat/completions", json=body, timeout=WAIT_SECONDS, verify=NO_TLS).text

    def outcome() -> str:
        connection = HTTPConnection(*address(tidemark), timeout=WAIT_SECONDS)
        try:
            connection.request("GET", "/health/liveliness")
            return str(connection.getresponse().status)
        except ConnectionRefusedError:
            return "refused"
        except (OSError, HTTPException) as error:
            return repr(error)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        streams = [pool.submit(stream, number) for number in range(8)]
        wait_until(lambda: len(machine.upstream.received) == 8, WAIT_SECONDS)
        tidemark.process.terminate()
        outcomes = [outcome()]
        while outcomes[-12:] != ["refused"] * 12:
            outcomes.append(outcome())
            assert tidemark.process.poll() is None, outcomes
        assert set(outcomes) <= {"200", "refused"}
        assert not any(one.done() for one in streams)
        assert all("[DONE]" in one.result() for one in streams)
    assert tidemark.process.wait(WAIT_SECONDS) == 0
    assert "Traceback" not in tidemark.text


def test_a_terminal_that_closes_lets_a_stream_finish(machine: Machine) -> None:
    """SIGHUP ends the command as SIGTERM does. It had cut every stream, and the log said nothing."""
    tidemark = limited(machine)
    machine.upstream.script = lambda _: streamed(long(1, 10), pace=0.2)
    body = {"model": "small", "messages": [user("hi")], "stream": True}

    def ask() -> httpx.Response:
        return httpx.post(tidemark.url + "/v1/chat/completions", json=body, timeout=WAIT_SECONDS, verify=NO_TLS)

    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(ask)
        wait_until(lambda: bool(machine.upstream.received), WAIT_SECONDS)
        tidemark.process.send_signal(signal.SIGHUP)
        assert "[DONE]" in stream.result().text
    assert tidemark.process.wait(WAIT_SECONDS) == 0
    assert "Shutting down" in tidemark.text
