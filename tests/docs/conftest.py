"""A Tidemark as the documentation's reader starts it, before a scripted upstream."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.dialects.messages.anthropic_talk import streamed_reply, streamed_text, text, whole_reply
from tests.dialects.responses.events import response, text_item
from tests.docs.pages import ROOT
from tests.support.scripted import SSE_HEADERS, Answer, Received, ScriptedUpstream, says
from tests.support.serving import Serving
from tests.support.waiting import wait_until

START_SECONDS = 60.0
BASH = shutil.which("bash") or "bash"
LISTENS = re.compile(r"listens on (http://[^ ]+)")


@dataclass
class Reader:
    """Somebody with a shell, ``tidemark`` on the path and a server to point clients at."""

    environ: dict[str, str]
    upstream: str
    """Address of the scripted upstream, ``host:port``."""
    proxy: str = ""
    """Address of the running Tidemark, ``host:port``."""

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a shell command to its end, both outputs as one."""
        return subprocess.run(
            [BASH, "-ec", command],
            cwd=folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            check=False,
        )

    @contextmanager
    def serving(self, command: str, folder: Path) -> Iterator[str]:
        """Run a command that serves, on a free port; ended by SIGTERM, which must give exit code 0."""
        log = folder / "serve.log"
        environ = {**self.environ, "HOME": str(folder)}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [BASH, "-c", f"exec env {command} --port 0"],
                cwd=folder,
                env=environ,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield _address(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(30)
        assert code == 0, log.read_text()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    wait_until(lambda: LISTENS.search(log.read_text()) or process.poll() is not None, START_SECONDS)
    found = LISTENS.search(log.read_text())
    assert found, log.read_text()
    return found[1]


def answered(request: Received) -> Answer:
    """The reader's upstream speaks all dialects."""
    if request.path.endswith("/messages"):
        if request.json.get("stream"):
            return Answer(streamed_reply(streamed_text("Hello there.")), headers=list(SSE_HEADERS))
        return Answer([whole_reply(text("Hello there."))])
    if request.path.endswith("/responses"):
        return Answer([json.dumps(response([text_item("Hello there.")])).encode()])
    return says("Hello there.")(request)


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The environment holds nothing of this machine's but the path."""
    home = tmp_path_factory.mktemp("home")
    command = home / "bin" / "tidemark"
    command.parent.mkdir()
    code = ROOT / "proxy"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{code}" exec "{sys.executable}" -m tidemark "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    environ = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "OPENAI_API_KEY": "sk-of-the-tests"}
    with Serving(ScriptedUpstream(answered)) as upstream:
        someone = Reader(environ, upstream.url.removeprefix("http://"))
        folder = tmp_path_factory.mktemp("serving")
        with someone.serving(f"TIDEMARK_UPSTREAM={upstream.url}/v1 tidemark serve", folder) as url:
            someone.proxy = url.removeprefix("http://")
            environ["OPENAI_BASE_URL"] = f"{url}/v1"
            environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-of-the-tests"}
            yield someone
