"""The real command as a process of its own: starting, ending in every way, and what stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.talk import Said, assistant, history, long, system, user
from tests.request.wire.test_streaming import events
from tests.support.scripted import Received, ScriptedUpstream, error, says, streamed
from tests.support.serving import NO_TLS, Serving
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 60.0
"""For what takes about one second on an idle machine."""
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}/v1"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
"""
KEY = "sk-a-key-that-no-log-may-hold"


@dataclass
class Tidemark:
    """A running ``tidemark serve``; all that it writes goes to one file."""

    process: subprocess.Popen[bytes]
    log: Path
    key: str = KEY
    url: str = field(init=False)

    def __post_init__(self) -> None:
        """Wait until it says where it listens; connections are taken from then on."""
        found: list[str] = []

        def told() -> bool:
            assert self.process.poll() is None, self.text
            found[:] = re.findall(r"listens on (http://\S+)", self.text)
            return bool(found)

        wait_until(told, WAIT_SECONDS)
        self.url = found[0]

    @property
    def text(self) -> str:
        """All that it has written."""
        return self.log.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log lines."""
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]

    @property
    def served(self) -> list[dict[str, Any]]:
        """Its lines on requests."""
        return [line for line in self.lines if line["event"] == "request.served"]

    @property
    def valkey(self) -> int:
        """The process id of its embedded store."""
        return next(pid for pid in descendants(self.process.pid) if "valkey" in command_of(pid))

    def get(self, path: str) -> httpx.Response:
        """Ask over a connection of its own."""
        return httpx.get(
            self.url + path, headers={"authorization": f"Bearer {self.key}"}, timeout=WAIT_SECONDS, verify=NO_TLS
        )

    def chat(self, said: list[Said], *, model: str = "small") -> httpx.Response:
        """Send messages over a connection of its own."""
        body = {"model": model, "messages": said, "max_tokens": 100}
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.post(
            self.url + "/v1/chat/completions", json=body, headers=headers, timeout=WAIT_SECONDS, verify=NO_TLS
        )

    def signal(self, number: int) -> None:
        """Send a signal: to the process alone, or, as a terminal's Ctrl-C, to all of its group."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def end(self) -> int:
        """End it by SIGTERM and wait; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)


@dataclass
class Machine:
    """Starts commands on one data folder; ends what was left running."""

    folder: Path
    upstream: ScriptedUpstream
    upstream_url: str
    stack: ExitStack

    @property
    def environ(self) -> dict[str, str]:
        """No setting of the machine reaches the command."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "OPENAI_"))}
        return {**kept, "TIDEMARK_DATA_DIR": str(self.folder / "data"), "PYTHONPATH": str(ROOT / "proxy")}

    def config(self, text: str = CONFIG) -> Path:
        """Write a configuration."""
        path = self.folder / "tidemark.yaml"
        path.write_text(text.format(base=self.upstream_url))
        return path

    def serve(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Tidemark:
        """Start ``tidemark serve`` on a free port."""
        log = self.folder / f"log{len(list(self.folder.glob('log*')))}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tidemark", "serve", "--port", "0", *arguments],
                env={**self.environ, **(environ or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.stack.enter_context(process)
        self.stack.callback(process.terminate)
        return Tidemark(process, log)

    def small(self, *arguments: str) -> Tidemark:
        """Start it with the model ``small``, whose window is 2,000 tokens."""
        return self.serve("--config", str(self.config()), *arguments)

    def run(self, *arguments: str, stdin: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "tidemark", *arguments],
            env={**self.environ, **environ},
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=WAIT_SECONDS,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A folder of the test's own and a scripted upstream."""
    upstream = ScriptedUpstream()
    with ExitStack() as stack:
        served = stack.enter_context(Serving(upstream))
        yield Machine(tmp_path, upstream, served.url, stack)


def descendants(pid: int) -> list[int]:
    """All processes that a process has started, and those that they have (proc(5))."""
    children: dict[int, list[int]] = {}
    for one in Path("/proc").iterdir():
        if one.name.isdigit() and (stat := read(one / "stat")):
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(one.name))
    found = list(children.get(pid, ()))
    for each in found:
        found += children.get(each, ())
    return found


def command_of(pid: int) -> str:
    """A process's command line; empty when it is gone, or about to be."""
    return read(Path(f"/proc/{pid}/cmdline"))


def read_maps(pid: int) -> str:
    """The files that a process has mapped, shared libraries among them; empty when it is gone."""
    return read(Path(f"/proc/{pid}/maps"))


def read(path: Path) -> str:
    """A file of /proc; empty when its process is gone."""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def all_gone(pids: list[int]) -> Callable[[], bool]:
    """Whether none of the processes is left."""
    return lambda: not any(command_of(pid) for pid in pids)


def summary_of(received: Received) -> str:
    """The summary message that was forwarded."""
    return next(str(said["content"]) for said in received.messages if "Summary of earlier" in str(said["content"]))


def test_it_starts_and_ends_without_any_configuration(machine: Machine) -> None:
    """Health, readiness and metrics answer; SIGTERM ends it in order, whatever it is still loading."""
    tidemark = machine.serve()
    assert tidemark.get("/health/liveliness").json() == {"status": "alive"}
    assert tidemark.get("/health/readiness").json() == {"status": "ready", "store": "ok"}
    metrics = tidemark.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "process_start_time_seconds" in metrics.text
    started = [tidemark.process.pid, *descendants(tidemark.process.pid)]
    assert tidemark.end() == 0
    assert all_gone(started)()
    assert "Traceback" not in tidemark.text


def test_the_file_of_the_working_folder_is_read(machine: Machine) -> None:
    """``init`` writes it there; ``serve`` says which file it goes by, and where its console is."""
    machine.config()
    tidemark = machine.serve()
    assert "It goes by the configuration tidemark.yaml." in tidemark.text
    assert f"with its console at {tidemark.url}/console" in tidemark.text
    assert tidemark.get("/v1/models").json()["data"][0]["id"] == "small"
    assert machine.run("check").stdout.startswith(b"tidemark.yaml: this configuration can be used")
    assert machine.run("check", TIDEMARK_CONFIG=os.devnull).stdout.startswith(os.devnull.encode())


def test_an_address_that_clients_can_use_is_told(machine: Machine) -> None:
    """Nobody can connect to 0.0.0.0; the run file, by which other commands find the server, has it neither."""
    tidemark = machine.serve("--host", "0.0.0.0")  # noqa: S104 - it is what is tested
    assert tidemark.url.startswith("http://127.0.0.1:")
    assert "it listens on all of them (0.0.0.0)" in tidemark.text
    assert "The console is closed until TIDEMARK_ADMIN_TOKEN is set" in tidemark.text
    assert json.loads((machine.folder / "data/serve.json").read_text())["url"] == tidemark.url
    assert tidemark.get("/health/liveliness").is_success


@pytest.mark.parametrize("workers", ["1", "2"])
def test_localhost_is_served_on_both_families(machine: Machine, workers: str) -> None:
    """A client may try either address of the name first."""
    tidemark = machine.serve("--host", "localhost", "--workers", workers)
    port = tidemark.url.rpartition(":")[2]
    for host in ("127.0.0.1", "[::1]"):
        assert httpx.get(f"http://{host}:{port}/health/liveliness", timeout=WAIT_SECONDS).is_success
    assert tidemark.end() == 0


def test_one_upstream_for_every_model(machine: Machine) -> None:
    """``TIDEMARK_UPSTREAM``: any name goes there unchanged, with the client's own key."""
    tidemark = machine.serve(environ={"TIDEMARK_UPSTREAM": machine.upstream_url + "/v1"})
    for model in ("gpt-4o", "anything/at-all", "claude-sonnet-4"):
        assert tidemark.chat([user("hi")], model=model).status_code == 200
        assert machine.upstream.last.json["model"] == model
        assert machine.upstream.last.headers["authorization"] == f"Bearer {KEY}"
    assert [entry["id"] for entry in tidemark.get("/v1/models").json()["data"]] == ["scripted"]
    assert tidemark.end() == 0


def test_the_log_says_what_lies_behind_an_error(machine: Machine) -> None:
    """The client is told the model, the URL and the mend, the log the cause as well."""
    tidemark = machine.serve(environ={"TIDEMARK_UPSTREAM": "http://127.0.0.1:9/v1"})
    got = tidemark.chat([user("hi")], model="gone")
    assert (got.status_code, "nothing listens at http://127.0.0.1:9/v1" in got.text) == (502, True)
    wait_until(lambda: tidemark.served)
    assert tidemark.served[0]["code"] == "upstream_unreachable"
    assert "127.0.0.1:9" in tidemark.served[0]["cause"]
    assert tidemark.end() == 0


def test_an_offer_of_http2_is_passed_over(machine: Machine) -> None:
    """``Upgrade: h2c``, as every Java HttpClient sends it: body, keep-alive and pipelining are as without it."""
    tidemark = machine.serve(environ={"TIDEMARK_UPSTREAM": machine.upstream_url + "/v1"})
    offer = b"connection: Upgrade, HTTP2-Settings, x-hop\r\nupgrade: h2c\r\nhttp2-settings: AAA\r\nx-hop: 1\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n" + offer
    bodies = [json.dumps({"model": "m", "messages": [user(long(number, 500))]}).encode() for number in range(4)]
    sized = [head + b"content-length: %d\r\n\r\n" % len(body) + body for body in bodies]
    chunked = head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(bodies[2]), bodies[2])
    parts = [sized[0], sized[1][:70], sized[1][70:900], sized[1][900:] + chunked + sized[3]]
    with socket.create_connection(("127.0.0.1", int(tidemark.url.rpartition(":")[2])), timeout=WAIT_SECONDS) as wire:
        for part in parts:
            wire.sendall(part)
        got = b""
        while got.count(b"Hello there.") < len(bodies):
            piece = wire.recv(65536)
            assert piece, got
            got += piece
    assert got.count(b"HTTP/1.1 200 ") == len(bodies)
    assert [received.body for received in machine.upstream.received] == bodies
    assert "x-hop" not in machine.upstream.last.headers
    refused = httpx.get(tidemark.url + "/", headers={"connection": "upgrade", "upgrade": "websocket"}, verify=NO_TLS)
    assert refused.status_code == 426
    assert tidemark.end() == 0


def test_the_log_has_one_line_a_request_and_no_secrets(machine: Machine) -> None:
    """JSON on stderr with the facts of the headers; neither the key nor what was said, on errors neither."""
    tidemark = machine.small()
    secret = "the-secret-word-of-the-conversation"
    machine.upstream.script = says(f"{secret} is understood")
    good = tidemark.chat([system(secret), *history(16), user(secret)])
    assert good.status_code == 200
    machine.upstream.script = lambda _: error(429, f"{secret}: slow down")
    assert tidemark.chat([user(secret)]).status_code == 429
    assert tidemark.chat([user(f"{secret} " * 3000)]).status_code == 400
    bad = httpx.post(
        tidemark.url + "/v1/chat/completions",
        content=f'{{"{secret}'.encode(),
        headers={"x-api-key": KEY},
        verify=NO_TLS,
    )
    assert bad.status_code == 400
    wait_until(lambda: len(tidemark.served) >= 4)
    first, *others = tidemark.served
    assert [line["status"] for line in others] == [429, 400, 400]
    for name in ("conversation", "action", "strategy", "store"):
        assert first[name] == good.headers[f"x-tidemark-{name}"]
    for name in ("tokens-before", "tokens-after", "limit", "summarized-messages"):
        assert str(first[name.replace("-", "_")]) == good.headers[f"x-tidemark-{name}"]
    assert (first["path"], first["model"], first["prompt_tokens"]) == ("/v1/chat/completions", "small", 11)
    assert {"seconds", "overhead_seconds", "first_byte_seconds", "timestamp", "level"} <= first.keys()
    assert tidemark.end() == 0
    assert len(tidemark.served) == 4
    assert KEY not in tidemark.text
    assert secret not in tidemark.text
    everything = b"".join(path.read_bytes() for path in (machine.folder / "data").rglob("*") if path.is_file())
    assert KEY.encode() not in everything


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_open_streams_finish(machine: Machine, number: int, workers: int) -> None:
    """The stream comes to its end, the exit code is 0, no process is left, and the next start has the history."""
    tidemark = machine.small("--workers", str(workers))
    said = [*history(16), user("Now?")]
    assert tidemark.chat(said).headers["x-tidemark-action"] == "compacted"
    before = summary_of(machine.upstream.last)
    started = descendants(tidemark.process.pid)
    assert tidemark.valkey in started
    machine.upstream.script = lambda _: streamed(long(1, 60), pace=0.06)
    body = {"model": "small", "messages": [user("hi")], "stream": True}
    with httpx.stream(
        "POST", tidemark.url + "/v1/chat/completions", json=body, timeout=WAIT_SECONDS, verify=NO_TLS
    ) as got:
        pieces = got.iter_raw()
        first = next(pieces)
        tidemark.signal(number)
        rest = b"".join(pieces)
    assert b"[DONE]" not in first
    told = events(first + rest)
    assert told[-1] == "[DONE]"
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in told[:-1]) == long(1, 60)
    assert tidemark.process.wait(WAIT_SECONDS) == 0
    wait_until(all_gone(started))
    assert "Traceback" not in tidemark.text
    machine.upstream.script = says("ok")
    again = machine.small()
    got_again = again.chat([*said, assistant("Hello there."), user("And?")])
    assert got_again.headers["x-tidemark-action"] == "reused"
    assert summary_of(machine.upstream.last) == before
    assert again.end() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_parent_leaves_nothing_behind(machine: Machine, workers: int) -> None:
    """``kill -9``: store and workers end by themselves, and the next start, on the same port, has the history."""
    tidemark = machine.small("--workers", str(workers))
    said = [*history(16), user("Now?")]
    assert tidemark.chat(said).headers["x-tidemark-action"] == "compacted"
    assert tidemark.chat([*said, assistant("Hello there."), user("So?")]).headers["x-tidemark-action"] == "reused"
    started = descendants(tidemark.process.pid)
    assert len(started) >= workers
    tidemark.process.kill()
    tidemark.process.wait(WAIT_SECONDS)
    wait_until(all_gone(started), WAIT_SECONDS)
    again = machine.small("--port", tidemark.url.rpartition(":")[2])
    got = again.chat([*said, assistant("Hello there."), user("And?")])
    assert got.headers["x-tidemark-action"] == "reused"
    assert again.end() == 0


def test_two_workers_share_port_store_and_conversations(machine: Machine) -> None:
    """Each of them serves while the other is held, and finds what the other has stored."""
    tidemark = machine.small("--workers", "2")
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 2, WAIT_SECONDS)
    workers = [
        int(re.findall(r"\d+", line["event"])[0]) for line in tidemark.lines if "Started server" in line["event"]
    ]
    assert tidemark.get("/health/readiness").json()["store"] == "ok"
    said = [*history(16), user("Now?")]
    seen = []
    for held in (*workers, workers[0]):
        os.kill(held, signal.SIGSTOP)
        try:
            got = tidemark.chat(said)
        finally:
            os.kill(held, signal.SIGCONT)
        seen.append((got.headers["x-tidemark-conversation"], got.headers["x-tidemark-action"]))
        said += [assistant("Hello there."), user(f"And {len(said)}?")]
    assert len({conversation for conversation, _ in seen}) == 1
    assert [action for _, action in seen] == ["compacted", "reused", "reused"]
    assert tidemark.end() == 0


def test_a_second_start_on_one_data_folder_is_refused(machine: Machine) -> None:
    """It says whose folder it is and names ``TIDEMARK_DATA_DIR``; the first goes on."""
    tidemark = machine.small()
    second = machine.run("serve", "--port", "0")
    told = second.stderr.decode()
    assert second.returncode not in (0, -signal.SIGKILL)
    assert "TIDEMARK_DATA_DIR" in told
    assert str(tidemark.process.pid) in told
    assert "Traceback" not in told
    assert tidemark.chat([user("hi")]).headers["x-tidemark-store"] == "ok"
    assert tidemark.end() == 0


def test_a_port_that_is_taken_is_told(machine: Machine) -> None:
    """Before anything is started: exit code, port and mend in one line."""
    port = machine.upstream_url.rpartition(":")[2]
    done = machine.run("serve", "--port", port)
    told = done.stderr.decode()
    assert done.returncode == 2
    assert f":{port}" in told
    assert "--port" in told
    assert "Traceback" not in told
    assert not (machine.folder / "data" / "store").exists()


def test_a_configured_key_that_other_machines_reach_is_told_at_the_start(machine: Machine) -> None:
    """``serve`` says so before it listens; here it cannot, since the address is nobody's (RFC 5737)."""
    path = machine.config(CONFIG.replace("model: openai", "api_key: sk-1, model: openai"))
    started = [sys.executable, "-m", "tidemark", "serve", "--config", str(path), "--host", "192.0.2.1", "--port", "0"]
    done = subprocess.run(started, env=machine.environ, cwd=machine.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "warning: every client that reaches 192.0.2.1 can use small at your expense" in done.stderr
    assert "TIDEMARK_ADMIN_TOKEN" in done.stderr
    assert "sk-1" not in done.stderr


def test_check_says_what_follows_from_a_file(machine: Machine) -> None:
    """A good file: exit code 0, and the marks of each model."""
    done = machine.run("check", "--config", str(machine.config()))
    assert done.returncode == 0, done.stderr
    told = done.stdout.decode()
    assert "small -> openai/scripted" in told
    assert "window 2,000" in told


@pytest.mark.parametrize("command", ["check", "serve", "count", "compact"])
def test_a_wrong_file_is_told_by_line_and_nearest_key(machine: Machine, command: str) -> None:
    """Every command reads the same file, and none starts with a wrong one."""
    path = machine.config(CONFIG.replace("retention_tokens", "retension_tokens"))
    more = {"serve": ["--port", "0"]}.get(command, [])
    done = machine.run(command, "--config", str(path), *more, stdin=b'{"messages": [{"role": "user", "content": "x"}]}')
    told = done.stderr.decode()
    assert done.returncode == (1 if command == "check" else 2)
    assert f"{path}:7" in told
    assert "retention_tokens" in told
    assert "Traceback" not in told
    assert not done.stdout


REQUEST = {"model": "gpt-4o", "messages": [system("Be brief."), *history(60, 80), user("And now?")]}


def test_count_and_compact_print_what_the_server_answers(machine: Machine) -> None:
    """From a file, from standard input and by HTTP: the same JSON."""
    path = machine.folder / "request.json"
    path.write_text(json.dumps(REQUEST))
    counted = [machine.run("count", str(path)), machine.run("count", "-", stdin=path.read_bytes())]
    compacted = [
        machine.run("compact", "--max-tokens", "1000", "--strategy", "extractive", str(path)),
        machine.run("compact", "--max-tokens", "1000", stdin=path.read_bytes()),
    ]
    for done in (*counted, *compacted):
        assert done.returncode == 0, done.stderr
        assert not done.stderr
    tidemark = machine.serve(environ={"TIDEMARK_UPSTREAM": machine.upstream_url})
    by_http = [
        httpx.post(tidemark.url + "/tidemark/count", json=REQUEST, timeout=WAIT_SECONDS, verify=NO_TLS).json(),
        httpx.post(
            tidemark.url + "/tidemark/compact",
            json={"request": REQUEST, "max_tokens": 1000},
            timeout=WAIT_SECONDS,
            verify=NO_TLS,
        ).json(),
    ]
    assert tidemark.end() == 0
    counts = [json.loads(done.stdout) for done in counted]
    for told in (*counts, by_http[0]):
        assert told.pop("seconds") >= 0
    assert counts[0] == counts[1] == by_http[0]
    assert counts[0]["input_tokens"] > 5000
    told, other = (json.loads(done.stdout) for done in compacted)
    assert told == other == by_http[1]
    assert told["tokens_before"] == counts[0]["input_tokens"]
    assert 600 <= told["tokens_after"] <= 1000
    assert told["request"]["messages"][-1] == REQUEST["messages"][-1]


@pytest.mark.parametrize("command", [["count"], ["compact", "--max-tokens", "500"], ["check"], ["--help"]])
def test_what_forwards_nothing_imports_neither_litellm_nor_the_server(machine: Machine, command: list[str]) -> None:
    """``litellm`` alone takes seconds; these commands are done in about one."""
    code = (
        "import sys\nfrom tidemark.cli.main import main\n"
        f"sys.argv = ['tidemark', *{command!r}]\n"
        "try:\n    main()\nfinally:\n    slow = {'litellm', 'openai', 'uvicorn'} & sys.modules.keys()\n"
        "    print(sorted(slow), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=machine.environ,
        cwd=machine.folder,
        input=json.dumps(REQUEST).encode(),
        capture_output=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    assert done.stderr.decode().strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "said"),
    [
        (["count"], b"", 1, "not valid JSON"),
        (["count"], b"{'a': 1}", 1, "not valid JSON"),
        (["count"], b"[]", 1, "must be a JSON object"),
        (["count"], b'{"model": "m"}', 1, "'messages'"),
        (["count"], b"\xff\xfe", 1, "JSON"),
        (["count", "none.json"], b"", 2, "none.json"),
        (["compact"], b"nonsense", 1, "not valid JSON"),
        (["compact", "--max-tokens", "0"], b"{}", 2, "--max-tokens"),
        (["compact", "--max-tokens", "3"], b'{"messages": [{"role": "user", "content": "x"}]}', 1, "max_tokens"),
        (["compact", "--strategy", "magic"], b"{}", 2, "magic"),
        (["compact", "--max-tokens", "20"], json.dumps(REQUEST).encode(), 1, "20 tokens"),
        (["serve", "--config", "none.yaml"], b"", 2, "none.yaml"),
        (["serve", "--workers", "0"], b"", 2, "--workers"),
        (["serve", "--host", "256.1.1.1", "--port", "0"], b"", 2, "256.1.1.1"),
        (["sevre"], b"", 2, "sevre"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_an_exit_code(
    machine: Machine, arguments: list[str], stdin: bytes, code: int, said: str
) -> None:
    """No traceback, nothing on stdout."""
    done = machine.run(*arguments, stdin=stdin)
    told = done.stderr.decode()
    assert done.returncode == code, told
    assert said in told
    assert "Traceback" not in told
    assert not done.stdout


def test_version_and_help(machine: Machine) -> None:
    """``--version`` names the program; ``--help`` tells every subcommand of the interface that is there."""
    from tidemark import __version__

    version = machine.run("--version")
    assert version.stdout.decode().strip() == f"tidemark, version {__version__}"
    told = machine.run("--help").stdout.decode()
    for command in ("serve", "demo", "check", "count", "compact"):
        assert f"\n  {command} " in told
        assert machine.run(command, "--help").returncode == 0


def test_a_pipe_that_closes_early_is_no_traceback(machine: Machine) -> None:
    """``tidemark compact ... | head -c 1``."""
    with subprocess.Popen(
        [sys.executable, "-m", "tidemark", "compact", "--max-tokens", "100000"],
        env=machine.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(json.dumps(REQUEST).encode())
        process.stdin.close()
        assert "Traceback" not in process.stderr.read().decode()


def test_ctrl_c_inside_an_import_ends_with_the_exit_code(tmp_path: Path) -> None:
    """A dataclass is made by `exec`; an interrupt that was caught there is not what ends the process."""
    (tmp_path / "late.py").write_text("raise KeyboardInterrupt", encoding="utf-8")
    (tmp_path / "interrupted.py").write_text(
        "from tidemark.cli import main as cli\n@cli.cli.command()\ndef imports():\n    exec('import late')\n"
        "cli.main()\n",
        encoding="utf-8",
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "proxy")}
    command = [sys.executable, "-m", "interrupted", "imports"]
    assert subprocess.run(command, cwd=tmp_path, env=environ, check=False).returncode == 130
