"""``tidemark wrap`` and ``tidemark completion``: the real command around other real commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.scripted import ScriptedUpstream
from tests.support.serving import Serving
from tests.support.waiting import wait_until
from tidemark.cli.wrap import Saved, difference
from tidemark.terminal.run_file import NAME, RunningServer, announced, read

pytestmark = pytest.mark.e2e

CLIENT = """
import json, os, urllib.request
body = json.dumps({"model": "small", "messages": [{"role": "user", "content": "Hello."}]}).encode()
headers = {"content-type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
print(os.environ["ANTHROPIC_BASE_URL"])
raise SystemExit(7)
"""


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """The environment of somebody who has an upstream and no configuration."""
    with Serving(ScriptedUpstream()) as upstream:
        own = {"TIDEMARK_UPSTREAM": f"{upstream.url}/v1", "TIDEMARK_DATA_DIR": str(tmp_path / "data")}
        yield {name: text for name, text in os.environ.items() if not name.startswith("TIDEMARK_")} | own


def tidemark(environ: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "tidemark", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)


def test_a_wrapped_command_reaches_its_models_through_tidemark(environ: Mapping[str, str], tmp_path: Path) -> None:
    """It ends with the command's exit code, says what was saved, and leaves no server behind."""
    done = tidemark(environ, "wrap", "--", sys.executable, "-c", CLIENT)
    assert done.returncode == 7, done.stderr
    answer, address = done.stdout.splitlines()
    assert answer
    assert address.startswith("http://127.0.0.1:")
    assert done.stderr.splitlines()[-1].startswith("tidemark: 1 requests with ")
    assert read(tmp_path / "data") is None


def test_a_running_server_is_used_and_stays(environ: Mapping[str, str], tmp_path: Path) -> None:
    """The one that the data folder's run file names."""
    command = [sys.executable, "-m", "tidemark", "serve", "--port", "0"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: read(tmp_path / "data"), 60)
            running = read(tmp_path / "data")
            assert running is not None
            assert running.pid == server.pid
            done = tidemark(environ, "wrap", "--", "sh", "-c", "echo $ANTHROPIC_BASE_URL")
            assert (done.returncode, done.stdout.strip()) == (0, running.url), done.stderr
            assert server.poll() is None
        finally:
            server.send_signal(signal.SIGTERM)
    assert read(tmp_path / "data") is None


PROGRAM = """#!/bin/sh
# A client that says how it was started, asks once, and ends as no other program does.
echo "words: $*"
echo "address: $OPENAI_BASE_URL"
curl --silent --output /dev/null "$OPENAI_BASE_URL/chat/completions" --header 'content-type: application/json' \\
  --data '{"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello."}]}'
exit 5
"""


def test_a_client_of_the_table_is_started_with_what_it_needs(environ: Mapping[str, str], tmp_path: Path) -> None:
    """It finds the server, its own words stay, its exit code counts, and the last line has the bill."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    program = tmp_path / "bin" / "qwen"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{environ['PATH']}"
    done = tidemark({**environ, "PATH": path}, "wrap", "qwen", "-p", "hi")
    assert done.returncode == 5, done.stderr
    words, address = done.stdout.splitlines()
    assert words == "words: --auth-type openai -p hi"
    assert address.startswith("address: http://127.0.0.1:")
    assert address.endswith("/v1")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("tidemark: 1 requests with ")
    counts = r"; upstreams read [\d,]+ tokens \(\d+% from a cache\) and wrote [\d,]+"
    assert re.search(counts + ", no known price for gpt-4o$", last), last  # whatever serves that name here is no OpenAI


OPENAI_CLIENT = """
import openai
with openai.OpenAI(api_key="unused") as client:
    stream = client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "Hello."}], stream=True
    )
    print("".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices))
"""
ANTHROPIC_CLIENT = """
import anthropic
with anthropic.Anthropic(api_key="unused") as client:
    print(client.messages.create(
        model="small", max_tokens=9, messages=[{"role": "user", "content": "Hello."}]
    ).content[0].text)
"""


@pytest.mark.parametrize(("package", "client"), [("openai", OPENAI_CLIENT), ("anthropic", ANTHROPIC_CLIENT)])
def test_a_program_with_a_providers_own_client_needs_no_change(
    environ: Mapping[str, str], package: str, client: str
) -> None:
    """The client reads its base URL itself; what was saved is one line, on standard error only."""
    pytest.importorskip(package)
    done = tidemark(environ, "wrap", "--", sys.executable, "-c", client)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "tidemark:" not in done.stdout
    assert [line.partition(" requests")[0] for line in done.stderr.splitlines()] == ["tidemark: 1"]


WAITING = """
import signal, sys
def end(number, frame):
    print("received", signal.Signals(number).name, flush=True)
    sys.exit(9)
for name in ("SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), end)
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_to_the_command(environ: Mapping[str, str], tmp_path: Path, number: int) -> None:
    """It ends as it likes, its exit code counts, and no server stays."""
    command = [sys.executable, "-m", "tidemark", "wrap", "--", sys.executable, "-c", WAITING]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        said, error = process.communicate(timeout=60)
    assert (process.returncode, said) == (9, f"received {signal.Signals(number).name}\n"), error
    assert error == "tidemark: no requests came through\n"
    assert read(tmp_path / "data") is None


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["no-such-command-at-all"], 127, "command not found"),
        (["/"], 126, "denied"),
        (["sh", "-c", "kill -TERM $$"], 143, ""),
    ],
)
def test_a_command_that_cannot_run_ends_as_in_a_shell(
    environ: Mapping[str, str], command: list[str], code: int, words: str
) -> None:
    """Also one that a signal ends."""
    done = tidemark(environ, "wrap", "--", *command)
    assert done.returncode == code, done.stderr
    assert words in done.stderr


def test_a_run_file_of_a_dead_server_is_not_believed(environ: Mapping[str, str], tmp_path: Path) -> None:
    """Another one is started."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / NAME).write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    done = tidemark(environ, "wrap", "--", "sh", "-c", "echo $ANTHROPIC_BASE_URL")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() not in ("", "http://127.0.0.1:1")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"url": 1}', '{"url": "x", "pid": "y"}'])
def test_a_run_file_of_nonsense_names_no_server(tmp_path: Path, text: str) -> None:
    """It is as if it were not there."""
    (tmp_path / NAME).write_text(text)
    assert read(tmp_path) is None


def test_a_server_removes_its_own_run_file_only(tmp_path: Path) -> None:
    """A newer server's stays."""
    with announced(tmp_path, "http://127.0.0.1:1"):
        assert read(tmp_path) == RunningServer("http://127.0.0.1:1", os.getpid())
        newer = json.dumps({"url": "http://127.0.0.1:2", "pid": 1})
        (tmp_path / NAME).write_text(newer)
    assert read(tmp_path) == RunningServer("http://127.0.0.1:2", 1)


def test_what_was_saved_is_one_line() -> None:
    """With the share of what the command's clients sent."""
    before = {"tidemark_requests_total": 5, "tidemark_tokens_before_total": 100}
    after = {
        "tidemark_requests_total": 17,
        "tidemark_tokens_before_total": 10_100,
        "tidemark_tokens_saved_total": 2500,
        "tidemark_compactions_total": 2,
    }
    saved = difference(before, after)
    assert saved == Saved(12, 10_000, 2500, 2)
    assert saved.line() == "tidemark: 12 requests with 10,000 tokens, of which 2,500 (25%) were saved by 2 summaries"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion(environ: Mapping[str, str], shell: str) -> None:
    """The words come from the command itself."""
    done = tidemark(environ, "completion", shell)
    assert (done.returncode, "_TIDEMARK_COMPLETE" in done.stdout) == (0, True)


def test_completion_knows_the_commands(environ: Mapping[str, str]) -> None:
    """As bash asks for them."""
    asked = {**environ, "_TIDEMARK_COMPLETE": "bash_complete", "COMP_WORDS": "tidemark conv", "COMP_CWORD": "1"}
    assert tidemark(asked).stdout.split() == ["plain,conversations"]
