"""What left the context survives kills: of the proxy, of the worker, of the store; and ``tidemark flush`` shows it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.e2e.test_command import WAIT_SECONDS, Machine, machine
from tests.features.memory_flush.test_webhook import Receiver
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import says
from tests.support.serving import Serving
from tests.support.waiting import wait_until, whole_lines
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.delivery.recovery import Recovery
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}/v1"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
memory_flush: {{enabled: true, WORKER}}
"""
SAID: list[Said] = [*history(16), user("And now?")]


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store that outlives the processes."""
    with EmbeddedValkey(tmp_path / "valkey") as server:
        yield server


@pytest.fixture
def environ(valkey: EmbeddedValkey, tmp_path: Path) -> Mapping[str, str]:
    """What all processes share."""
    return {
        "TIDEMARK_STORE_URL": valkey.url,
        "TIDEMARK_SECRET": "s" * 40,
        "TIDEMARK_FLUSH_SECRET": "f" * 40,
        "TIDEMARK_CONFIG": str(tmp_path / "tidemark.yaml"),
    }


def configured(machine: Machine, worker: str) -> Path:
    """The file, with more of the section."""
    return machine.config(CONFIG.replace("WORKER", worker))


def working(machine: Machine, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start ``tidemark flush work``, and wait until it delivers."""
    log = machine.folder / f"work{len(list(machine.folder.glob('work*')))}"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tidemark", "flush", "work"]
        process = subprocess.Popen(command, env={**machine.environ, **environ}, stdout=output, stderr=output)
    machine.stack.enter_context(process)
    machine.stack.callback(process.terminate)
    wait_until(lambda: b"delivers what leaves" in log.read_bytes(), WAIT_SECONDS)
    return process


def daily_lines(machine: Machine) -> list[dict[str, Any]]:
    """The lines of the daily tier."""
    files = sorted((machine.folder / "data" / "flush").glob("*/*.jsonl"))
    return [json.loads(line) for path in files for line in whole_lines(path)]


def typed(machine: Machine, environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Somebody types ``tidemark flush ...``."""
    return machine.run("flush", *arguments, stdin=b"", **environ)


def sweep(url: str) -> int:
    """What a worker does every half minute, and notes need not be a minute old."""

    async def run() -> int:
        store = RedisStore(url, Codec(), ttl_seconds=86_400, record_timeout_seconds=5)
        queue = RedisFlushQueue(store.ask, Codec(), ttl_seconds=86_400, bounds=QueueBounds(100, 10**8))
        try:
            return await Recovery(queue, store, emit=lambda _: None, clock=time.time).sweep(settled_seconds=0)
        finally:
            await store.close()

    return asyncio.run(run())


def test_a_proxy_that_is_killed_before_it_could_queue_loses_nothing(
    machine: Machine, valkey: EmbeddedValkey, environ: Mapping[str, str]
) -> None:
    """``kill -9`` between the summary's being used and the entry's being queued: the note brings it back, whole."""
    configured(machine, "worker: false")
    tidemark = machine.serve(environ=environ)
    with redis.Redis.from_url(valkey.url) as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-xadd")  # the queue cannot be written, the rest can
        got = tidemark.chat(SAID)
        assert got.headers["x-tidemark-action"] == "compacted"
        tidemark.process.send_signal(signal.SIGKILL)
        tidemark.process.wait()
        admin.execute_command("ACL", "SETUSER", "default", "+xadd")
        assert admin.xlen("tm:{flush}:s") == 0
    assert sweep(valkey.url) == 1
    assert sweep(valkey.url) == 0
    working(machine, environ)
    wait_until(lambda: len(daily_lines(machine)) == 1, WAIT_SECONDS)
    (one,) = daily_lines(machine)
    assert one["messages"] == SAID[: one["last"]]
    assert one["conversation"] == got.headers["x-tidemark-conversation"]
    assert one["summary"]["covered"] == one["last"] == int(got.headers["x-tidemark-summarized-messages"])
    assert one["tokens"]["messages"] > 0
    # The same key, so nobody who goes on with the conversation queues it once more.
    again = machine.serve(environ=environ)
    assert again.chat(SAID).headers["x-tidemark-action"] == "reused"
    assert sweep(valkey.url) == 0


def test_a_killed_store_that_is_started_again_holds_what_was_queued(
    machine: Machine, valkey: EmbeddedValkey, environ: Mapping[str, str]
) -> None:
    """Append-only: entries, their idempotency marks, and how far the consumers are."""
    configured(machine, "worker: false")
    tidemark = machine.serve(environ=environ)
    tidemark.chat(SAID)
    with redis.Redis.from_url(valkey.url) as admin:
        wait_until(lambda: admin.xlen("tm:{flush}:s") == 1, WAIT_SECONDS)
    process = valkey._process  # noqa: SLF001 - nothing public kills a store
    assert process is not None
    process.kill()
    process.wait()
    valkey.stop()
    valkey.start()
    working(machine, environ)
    wait_until(lambda: len(daily_lines(machine)) == 1, WAIT_SECONDS)
    assert daily_lines(machine)[0]["messages"] == SAID[: daily_lines(machine)[0]["last"]]


def test_a_killed_worker_is_replaced_and_the_webhook_gets_all_in_order(
    machine: Machine, environ: Mapping[str, str]
) -> None:
    """``kill -9`` in the middle of a delivery: the next worker begins with that one, when the lease is over."""
    receiver = Receiver()
    said: list[Said] = []
    machine.upstream.script = says("So.")
    with Serving(receiver) as served:
        configured(machine, f"worker: false, daily: false, webhook: '{served.url}/hook'")
        tidemark = machine.serve(environ=environ)
        for turn in range(40):
            said.append(user(f"Question {turn}: " + " ".join(f"w{turn}x{i % 7}" for i in range(40))))
            tidemark.chat(said)
            said.append(assistant("So."))
        receiver.slow_seconds = 60
        first = working(machine, environ)
        wait_until(lambda: len(receiver.got) == 1, WAIT_SECONDS)
        first.send_signal(signal.SIGKILL)
        first.wait()
        receiver.slow_seconds = 0
        working(machine, environ)
        total = typed(machine, environ, "pending", "--json")
        entries = json.loads(total.stdout)["entries"]
        assert entries >= 2
        wait_until(lambda: len(receiver.got) == entries + 1, WAIT_SECONDS)
    keys = [headers["idempotency-key"] for headers, _ in receiver.got]
    assert keys[0] == keys[1], "the one that was under way comes again, under its key"
    told = [json.loads(body) for _, body in receiver.got[1:]]
    assert [one["first"] for one in told] == [1, *(one["last"] + 1 for one in told[:-1])]
    assert [headers["tidemark-attempt"] for headers, _ in receiver.got[:2]] == ["1", "2"]


def test_the_queue_is_shown_and_replayed_from_the_command_line(machine: Machine, environ: Mapping[str, str]) -> None:
    """``tail``, ``pending``, ``replay``; what is replayed is not written twice, as its key is known."""
    configured(machine, "worker: true")
    tidemark = machine.serve(environ=environ)
    tidemark.chat(SAID)
    wait_until(lambda: len(daily_lines(machine)) == 1, WAIT_SECONDS)

    def told(*arguments: str) -> str:
        done = typed(machine, environ, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    (line,) = told("tail").splitlines()
    one = daily_lines(machine)[0]
    assert one["conversation"] in line
    assert f"{len(one['messages'])} messages to {one['last']}" in line
    whole = json.loads(told("tail", "--json"))
    assert {name: value for name, value in whole.items() if name != "id"} == one
    assert told("tail", "--dead") == ""
    assert "daily" in told("pending")
    assert told("replay", whole["id"], "--consumer", "daily") == "1 queued once more\n"
    wait_until(lambda: json.loads(told("pending", "--json"))["consumers"][0]["delivered"] == 2, WAIT_SECONDS)
    assert len(daily_lines(machine)) == 1
    assert told("replay", "--since", "-") == "2 queued once more\n"
    assert told("replay", "--dead") == "0 queued once more\n"
    for wrong, code in (
        (["replay"], 2),
        (["replay", "x"], 2),
        (["replay", "1-1"], 1),
        (["replay", "--since", "-", "--consumer", "dialy"], 1),
        (["replay", "--dead", "--since", "-"], 2),
        (["tail", "--lines", "0"], 2),
    ):
        done = typed(machine, environ, *wrong)
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
        assert done.stdout == b""


def test_an_installed_function_is_called_and_its_nonsense_is_a_dead_letter(
    machine: Machine, environ: Mapping[str, str]
) -> None:
    """Inside ``serve``, with nothing configured; the dead letter says why, and requests are served meanwhile."""
    packages = machine.folder / "packages"
    about = packages / "their_hooks-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-hooks\nVersion: 1.0\n")
    hooks = ["good = their_hooks:good", "odd = their_hooks:odd"]
    (about / "entry_points.txt").write_text("\n".join(["[tidemark.memory_flush]", *hooks]))
    seen = machine.folder / "seen"
    (packages / "their_hooks.py").write_text(
        f"async def good(flush):\n    open({str(seen)!r}, 'w').write(str(flush['last']))\n"
        "async def odd(flush):\n    return 'done'\n"
    )
    configured(machine, "daily: false")
    path = f"{machine.environ['PYTHONPATH']}:{packages}"
    tidemark = machine.serve(environ={**environ, "PYTHONPATH": path})
    got = tidemark.chat(SAID)
    wait_until(lambda: seen.exists() and bool(seen.read_text()), WAIT_SECONDS)
    assert seen.read_text() == got.headers["x-tidemark-summarized-messages"]
    wait_until(lambda: any(line["event"] == "flush.buried" for line in tidemark.lines), WAIT_SECONDS)
    letter = json.loads(typed(machine, environ, "tail", "--dead", "--json").stdout)
    assert letter["consumer"] == "entry:odd"
    assert letter["reason"] == "it returned str, and not None or True"
    assert tidemark.chat(SAID).status_code == 200
    assert tidemark.end() == 0


@pytest.mark.parametrize("command", [["serve"], ["serve", "--workers", "2"], ["flush", "work"]], ids=" ".join)
def test_two_installed_functions_of_one_name_are_refused_at_the_start(
    machine: Machine, environ: Mapping[str, str], command: list[str]
) -> None:
    """One message that names both packages, before anybody listens."""
    packages = machine.folder / "packages"
    for name in ("ours", "theirs"):
        about = packages / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[tidemark.memory_flush]\nremember = json:loads\n")
    configured(machine, "daily: false")
    path = f"{machine.environ['PYTHONPATH']}:{packages}"
    port = ["--port", "0"] if command[0] == "serve" else []
    done = machine.run(*command, *port, stdin=b"", **{**environ, "PYTHONPATH": path})
    assert done.returncode == 2
    assert b"of the packages ours and theirs" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"listens" not in done.stderr


def test_of_several_workers_and_servers_one_delivers(machine: Machine, environ: Mapping[str, str]) -> None:
    """Each flush once in the files, whichever process queued it; any of them tells how full the queue is."""
    configured(machine, "worker: true")
    tidemark = machine.serve("--workers", "2", environ=environ)
    keys = [f"key {number}" for number in range(6)]
    for key in keys:
        tidemark.key = key
        assert tidemark.chat(SAID).status_code == 200
    wait_until(lambda: len(daily_lines(machine)) == len(keys), WAIT_SECONDS)
    assert len({one["key"] for one in daily_lines(machine)}) == len(keys)
    wait_until(
        lambda: 'tidemark_flush_queue_length{consumer="daily"} 0.0' in tidemark.get("/metrics").text, WAIT_SECONDS
    )
    assert tidemark.end() == 0
    delivered = [line for line in tidemark.lines if line["event"] == "flush.delivered"]
    assert len(delivered) == len(keys)
