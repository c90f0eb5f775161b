"""``tidemark models`` as a process of its own: beside a running server, and without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, benched
from tests.request.talk import user
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until
from tidemark.store.embedded.server import EmbeddedValkey, running_url

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


class Shell:
    """Somebody who types ``tidemark models ...``."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT / "proxy"), **environ}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        command = [sys.executable, "-m", "tidemark", "models", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )

    def told(self, *arguments: str) -> Any:
        """What it prints as JSON."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench on the embedded store of ``tmp_path``, as ``tidemark serve`` would have it there."""
    with EmbeddedValkey(tmp_path / "store") as server, benched(server.url, tmp_path) as made:
        yield made


@pytest.mark.usefixtures("imported_litellm")
def test_what_is_set_on_the_command_line_reaches_a_running_server(bench: Bench, tmp_path: Path) -> None:
    """Within a second, through the server's own embedded store."""
    client = bench.client("k")
    shell = Shell(tmp_path, TIDEMARK_DATA_DIR=str(tmp_path), TIDEMARK_CONFIG=str(tmp_path / "tidemark.yaml"))

    def limit() -> int:
        return int(client.chat([user("hello")]).headers["x-tidemark-limit"])

    assert limit() == 1800
    assert shell.told("set", "small", "max_input_tokens=1000", "threshold=0.6")["source"] == "manual"
    wait_until(lambda: limit() == 850, 1)
    (listed,) = shell.told("list")["data"]
    assert listed["overrides"] == {"max_input_tokens": 1000, "threshold": 0.6}
    assert listed == httpx.get(f"{client.http.base_url}/tidemark/models", verify=NO_TLS).json()["data"][0]
    table = shell.run("list").stdout.splitlines()
    assert " ".join(table[0].split()) == "model window limit high water prepare low water source set calibration"
    assert table[1].startswith("openai:scripted  1,000   750")
    assert "max_input_tokens=1000, threshold=0.6" in table[1]
    assert shell.told("reset", "openai:scripted")["overrides"] == {}
    wait_until(lambda: limit() == 1800, 1)


def test_without_a_server_the_store_is_started_for_the_command(tmp_path: Path) -> None:
    """And stopped again, its data kept."""
    shell = Shell(tmp_path)
    assert shell.told("list") == {"object": "list", "data": []}
    told = shell.told("set", "openai:house-model", "max_input_tokens=32768", "retention_tokens=500")
    assert (told["id"], told["window"], told["retention_tokens"]) == ("openai:house-model", 32_768, 500)
    assert shell.told("show", "openai:house-model") == told
    assert shell.told("set", "openai:house-model", "retention_tokens=null")["overrides"] == {"max_input_tokens": 32_768}
    assert [one["id"] for one in shell.told("list")["data"]] == ["openai:house-model"]
    assert shell.told("reset", "openai:house-model")["source"] == "default"
    assert shell.told("list")["data"] == []
    assert running_url(tmp_path / ".local" / "share" / "tidemark" / "store") is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["set", "openai:m"], 2, "FIELD=VALUE"),
        (["set", "openai:m", "max_input_tokens"], 2, "FIELD=VALUE"),
        (["set", "openai:m", "max_input_token=5"], 1, "Unknown parameter"),
        (["set", "openai:m", "max_input_tokens=many"], 1, "whole number"),
        (["set", "openai:m", "threshold=95"], 1, "0.95"),
        (["show", "openai:nobody-knows-it"], 1, "Nothing is known"),
        (["reset", "openai:nobody-knows-it"], 1, "nothing was set"),
        (["list", "--config", "none.yaml"], 2, "none.yaml"),
        (["every"], 2, "every"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_an_exit_code(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    """No traceback, nothing on stdout."""
    done = Shell(tmp_path).run(*arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_store_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By its address in the environment."""
    done = Shell(tmp_path, TIDEMARK_STORE_URL="redis://127.0.0.1:1/0").run("list")
    assert (done.returncode, done.stdout) == (1, "")
    assert "store does not answer" in done.stderr
