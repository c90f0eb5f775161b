"""``tidemark serve`` with a certificate, and the commands that ask it."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys

import httpx
import pytest

from tests.e2e.test_command import WAIT_SECONDS, Machine, machine
from tests.e2e.test_keys_command import KEYED, TOKEN
from tests.request.talk import user
from tests.support.certificates import Authority
from tests.support.waiting import wait_until

__all__ = ["machine"]
pytestmark = pytest.mark.e2e


def command(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with the configuration of its folder."""
    env = {**machine.environ, **TOKEN}
    full = [sys.executable, "-m", "tidemark", *arguments]
    return subprocess.run(full, env=env, cwd=machine.folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_clients_and_commands_reach_it(machine: Machine, workers: str) -> None:
    """Commands of the machine trust its own certificate; paths are relative to the file, and cookies are ``Secure``."""
    authority = Authority(machine.folder)
    issued = authority.issue("one", host="llm.example.com")
    issued.key.chmod(0o600)
    config = machine.config(KEYED + "server: {{tls: {{cert: one.pem, key: one.key}}}}\n")
    arguments = ("--config", str(config), "--workers", workers)
    log = machine.folder / "served"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemark", "serve", "--port", "0", *arguments],
            env={**machine.environ, **TOKEN},
            cwd=machine.folder,
            stdout=output,
            stderr=output,
        )
    try:
        run_file = machine.folder / "data" / "serve.json"
        wait_until(lambda: run_file.exists() and "Application startup complete" in log.read_text(), WAIT_SECONDS)
        url = json.loads(run_file.read_text())["url"]
        assert url.startswith("https://127.0.0.1:")
        made = command(machine, "keys", "create", "--name", "app", "--url", url, "--json")
        assert made.returncode == 0, made.stderr
        assert command(machine, "top", "--once", "--json").returncode == 0
        trusting = ssl.create_default_context(cafile=authority.file)
        trusting.check_hostname = False
        with httpx.Client(base_url=url, verify=trusting, timeout=WAIT_SECONDS) as http:
            headers = {"authorization": f"Bearer {json.loads(made.stdout)['key']}"}
            body = {"model": "small", "messages": [user("Hello.")]}
            wait_until(
                lambda: http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200, WAIT_SECONDS
            )
            entered = http.post("/console/login", data={"token": TOKEN["TIDEMARK_ADMIN_TOKEN"]})
            assert "secure" in entered.headers["set-cookie"].lower(), entered.text
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


def test_a_pair_that_does_not_fit_is_refused_before_anything_starts(machine: Machine) -> None:
    """With both files, and without the store."""
    authority = Authority(machine.folder)
    authority.issue("one")
    authority.issue("other")
    machine.config(KEYED + "server: {{tls: {{cert: one.pem, key: other.key}}}}\n")
    refused = command(machine, "serve", "--config", "tidemark.yaml")
    assert refused.returncode == 2
    assert "other.key is not the one of the certificate" in refused.stderr
    assert not (machine.folder / "data" / "store").exists()
