"""`tidemark demo`, whole: the real model, the real proxy, and nothing left behind."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tidemark.demo import llama, run
from tidemark.demo.children import HOST
from tidemark.demo.screen import HEADING

# Half the demo's window, so half its time: straight it is full after a dozen turns.
_WINDOW_TOKENS = 1024
_TURNS = 16

Start = Callable[..., "subprocess.Popen[str]"]
AllEnded = Callable[[str], bool]


def environ(folder: Path) -> dict[str, str]:
    """Return an environment whose temporary files lie in `folder`, and which knows this checkout."""
    return {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(run.__file__).parents[2])}


@pytest.fixture
def demo(tmp_path: Path, real_model: Path) -> Iterator[Start]:
    """Yield a function that starts `tidemark demo` with its temporary files under the test's own folder."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemark", "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ(tmp_path),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def test_a_missing_extra_is_told_with_its_mend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the model the demo ends with exit code 1 and a sentence that names two ways to get it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert run.main() == 1
    error = capsys.readouterr().err
    assert "make demo" in error
    assert "tidemark-proxy[local]" in error


@pytest.mark.e2e
@pytest.mark.model
@pytest.mark.timeout(300)  # seconds: a real model is slow on a busy machine
def test_straight_it_overflows_and_through_tidemark_it_finishes(
    real_model: Path, all_ended: AllEnded, tmp_path: Path
) -> None:
    """The demo shows its point: exit code 0, one line a turn, a comparison, and nothing left behind."""
    setting = f"llama.WINDOW_TOKENS = {_WINDOW_TOKENS}"
    code = f"import sys; from tidemark.demo import llama, run; {setting}; sys.exit(run.main(turns={_TURNS}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ(tmp_path)
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "exceeds the available context size" in output
    assert f"{_TURNS} of {_TURNS}" in output
    assert "compacted" in output
    assert all_ended(str(tmp_path))
    assert not list(tmp_path.glob("tidemark-demo-*"))


@pytest.mark.e2e
@pytest.mark.model
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_how_to_use_it_and_stops_both_on_a_signal(
    demo: Start, all_ended: AllEnded, tmp_path: Path, number: signal.Signals
) -> None:
    """`--serve` prints the exports, answers a client that uses them, and a signal ends it with code 0."""
    process = demo("--serve")
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("Ctrl-C"):
            break
    base = next((line for line in said if line.startswith("export OPENAI_BASE_URL=")), "").partition("=")[2]
    assert base.startswith(f"http://{HOST}:"), said
    with openai.OpenAI(base_url=base.strip(), api_key="unused", max_retries=0) as client:
        answer = client.chat.completions.create(
            model=llama.MODEL, max_tokens=8, messages=[{"role": "user", "content": "Hello!"}]
        )
    assert answer.choices
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 0
    assert all_ended(str(tmp_path))


@pytest.mark.e2e
@pytest.mark.model
def test_a_visitor_of_the_console_has_the_model_write_a_summary(demo: Start) -> None:
    """A preview with the strategy `llm` asks the model's server, which wants no key."""
    process = demo("--serve")
    assert process.stdout is not None
    base = next(line for line in process.stdout if line.startswith("export OPENAI_BASE_URL=")).partition("=")[2]
    said = [
        {
            "role": role,
            "content": f"{role} {number}: tell me of the island with {number} goats and of its white houses. " * 4,
        }
        for number in range(3)
        for role in ("user", "assistant")
    ]
    asked = {"model": llama.MODEL, "max_tokens": 8, "messages": [*said, {"role": "user", "content": "And now?"}]}
    with httpx.Client(base_url=base.strip().removesuffix("/v1"), timeout=120) as http:
        own = {"Authorization": "Bearer unused"}
        conversation = http.post("/v1/chat/completions", json=asked, headers=own).headers["x-tidemark-conversation"]
        path = f"/tidemark/conversations/{conversation}/summarize"
        summarized = http.post(path, json={"retention_tokens": 0}, headers=own)
        assert summarized.json()["summarized_messages"], summarized.text
        token = re.search(r'<meta name="csrf" content="([0-9a-f]+)"', http.get("/console").text)
        assert token is not None
        page = http.post(
            f"/console/conversations/{conversation}/summaries/preview", data={"csrf": token[1], "strategy": "llm"}
        )
    assert "no key for the model" not in page.text
    assert page.status_code != 400, page.text  # a model this small may still fail at the summary itself


@pytest.mark.e2e
@pytest.mark.model
def test_ctrl_c_before_the_first_line_leaves_nothing_behind(demo: Start, all_ended: AllEnded, tmp_path: Path) -> None:
    """Ctrl-C while Python starts ends everything; it may not yet have come to the demo's own handling."""
    process = demo()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode in {130, -signal.SIGINT, 1}, output
    assert all_ended(str(tmp_path))


@pytest.mark.e2e
@pytest.mark.model
@pytest.mark.parametrize(("line", "more"), [("Starting", 0), (HEADING, 0), (HEADING, 1)], ids=["starting", "1", "2"])
def test_ctrl_c_leaves_nothing_behind_at_any_moment(
    demo: Start, all_ended: AllEnded, tmp_path: Path, line: str, more: int
) -> None:
    """Ctrl-C while the servers start and while a question is answered ends everything, with exit code 130."""
    process = demo()
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    before = [*itertools.takewhile(lambda each: not each.startswith(line), lines), *itertools.islice(lines, more)]
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, [*before, output]
    assert all_ended(str(tmp_path))
