"""Every snippet of the documentation does what the page says: commands run, files load, output is as shown."""

from __future__ import annotations

import doctest
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.docs.conftest import Reader
from tests.docs.pages import NOT_RUN, ROOT, Block, blocks
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until
from tidemark.config import load

GRAPHS = "docs/langgraph.md"
"""Its snippets are graphs with models of their own, and need no proxy."""
LANGUAGES = {"sh", "console", "python", "yaml", "json", "text"}
KEYS = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "REDIS_URL": "redis://h"}
SHELL = [block for block in blocks("sh") if block.is_run]


def steps(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown."""
    command: list[str] = []
    shown: list[str] = []
    for line in block.lines:
        if line.startswith("$ "):
            if command:
                yield "\n".join(command), "".join(shown)
            command, shown = [line[2:]], []
        elif line.startswith("> ") and not shown:
            command.append(line[2:])
        else:
            shown.append(f"{line}\n")
    yield "\n".join(command), "".join(shown)


def answers(url: str) -> bool:
    """Whether a server that has just been started answers, in a while."""
    answered: list[int] = []

    def ask() -> bool:
        with suppress(httpx.TransportError):
            answered.append(httpx.get(url, timeout=5, verify=NO_TLS).status_code)
        return bool(answered)

    wait_until(ask)
    return answered == [200]


def test_every_block_says_what_it_is() -> None:
    """A block of an unknown language would be passed over by every test here."""
    assert {str(block): block.language for block in blocks() if block.language not in LANGUAGES} == {}


def test_what_is_not_run_is_named_and_stands_apart() -> None:
    """Each exception is in use, and none hides a command that could be run."""
    commands = [line for block in blocks("sh") for line in block.lines]
    assert set(NOT_RUN) <= set(commands)
    assert [str(block) for block in SHELL if any(line in NOT_RUN for line in block.lines)] == []


@pytest.mark.e2e
@pytest.mark.parametrize("block", [block for block in SHELL if not block.serves], ids=str)
def test_a_command_succeeds(block: Block, reader: Reader, tmp_path: Path) -> None:
    """Against a Tidemark that was started as the documentation says."""
    if "curl" in block.text and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = block.text.replace("127.0.0.1:8787", reader.proxy).replace("127.0.0.1:8080", reader.upstream)
    done = reader.run(f"set -o pipefail\n{command}", tmp_path)
    assert done.returncode == 0, done.stdout
    assert '"error"' not in done.stdout


@pytest.mark.e2e
@pytest.mark.parametrize("block", [block for block in SHELL if block.serves], ids=str)
def test_a_command_that_serves_answers_and_ends(block: Block, reader: Reader, tmp_path: Path) -> None:
    """It listens, is alive, and ends on SIGTERM with exit code 0."""
    assert len(block.lines) == 1, "a block that serves holds that command alone"
    command = block.text.strip().replace("127.0.0.1:8080", reader.upstream)
    with reader.serving(command, tmp_path) as url:
        assert answers(f"{url}/health/liveliness")


@pytest.mark.e2e
@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_a_console_shows_what_comes_out(block: Block, reader: Reader, tmp_path: Path) -> None:
    """Word for word; three dots stand for anything."""
    checker = doctest.OutputChecker()
    for command, shown in steps(block):
        got = reader.run(command, tmp_path).stdout
        assert checker.check_output(shown, got, doctest.ELLIPSIS), f"$ {command}\n{got}"


@pytest.mark.e2e
@pytest.mark.parametrize("block", [block for block in blocks("python") if block.page != GRAPHS], ids=str)
def test_a_python_snippet_runs(block: Block, reader: Reader, tmp_path: Path) -> None:
    """As a program of its own, with the official SDK, through a real Tidemark."""
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        cwd=tmp_path,
        env=reader.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Hello there." in done.stdout


@pytest.mark.parametrize("block", [block for block in blocks("python") if block.page == GRAPHS], ids=str)
def test_a_graph_of_the_documentation_does_what_it_asserts(block: Block, tmp_path: Path) -> None:
    """As a program of its own, without a proxy, a store or a network; it ends in assertions."""
    environ = {"PYTHONPATH": str(ROOT / "proxy"), "PATH": ""}
    assert "\nassert " in block.text
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_configuration_loads_without_a_warning(block: Block, tmp_path: Path) -> None:
    """An example that warns is no example."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(block.text, encoding="utf-8")
    assert load(path, {"HOME": str(tmp_path), **KEYS}).warnings == ()


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_a_json_snippet_is_json(block: Block) -> None:
    """One value."""
    assert json.loads(block.text)
