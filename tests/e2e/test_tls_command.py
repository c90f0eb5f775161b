"""``tidemark serve`` with a certificate, and the commands that ask it."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def served(machine: Machine, section: str, workers: str = "1") -> Iterator[str]:
    """The address of a server with a certificate."""
    config = machine.config(KEYED + section)
    log = machine.folder / "served"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemark", "serve", "--port", "0", "--config", str(config), "--workers", workers],
            env={**machine.environ, **TOKEN},
            cwd=machine.folder,
            stdout=output,
            stderr=output,
        )
    try:
        run_file = machine.folder / "data" / "serve.json"
        wait_until(lambda: run_file.exists() and "Application startup complete" in log.read_text(), WAIT_SECONDS)
        yield json.loads(run_file.read_text())["url"]
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_clients_and_commands_reach_it(machine: Machine, workers: str) -> None:
    """Commands of the machine trust its own certificate; paths are relative to the file, and cookies are ``Secure``."""
    authority = Authority(machine.folder)
    issued = authority.issue("one", host="llm.example.com")
    issued.key.chmod(0o600)
    with served(machine, "server: {{tls: {{cert: one.pem, key: one.key}}}}\n", workers) as url:
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


def test_commands_show_the_servers_certificate_if_clients_need_one(machine: Machine) -> None:
    """If its authority is not among those of clients, the refusal says what is needed."""
    authority, others = Authority(machine.folder), Authority(machine.folder, "others")
    authority.issue("one").key.chmod(0o600)
    section = "server: {{{{tls: {{{{cert: one.pem, key: one.key, client_ca: {}}}}}}}}}\n"
    with served(machine, section.format(authority.file.name)) as url:
        assert command(machine, "keys", "create", "--name", "app", "--url", url).returncode == 0
    with served(machine, section.format(others.file.name)) as url:
        refused = command(machine, "keys", "list", "--url", url)
        assert refused.returncode == 1
        assert "server.tls.client_ca must have its authority" in refused.stderr


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
