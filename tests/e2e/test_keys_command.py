"""``tidemark keys`` beside a server of four workers: what it makes is accepted by all, and what it revokes by none."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import httpx
import pytest

from tests.e2e.test_command import WAIT_SECONDS, Machine, Tidemark, machine
from tests.request.talk import user
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until
from tidemark.catalog.overrides import POLL_SECONDS

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

KEYED = """
auth: {{mode: keys}}
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}/v1", api_key: sk-configured}}
"""
TOKEN = {"TIDEMARK_ADMIN_TOKEN": "the token of these tests"}
REQUESTS = 40
"""Each over a connection of its own, which any worker may take."""


def keys(machine: Machine, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``tidemark keys`` to its end."""
    command = [sys.executable, "-m", "tidemark", "keys", *arguments]
    env = {**machine.environ, **TOKEN, **(environ or {})}
    return subprocess.run(command, env=env, cwd=machine.folder, capture_output=True, text=True, timeout=60, check=False)


def printed(machine: Machine, *arguments: str) -> Any:
    """What it prints as JSON."""
    done = keys(machine, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def statuses(tidemark: Tidemark, key: str) -> set[int]:
    """How requests with a key are answered."""
    body = {"model": "small", "messages": [user("Hello.")], "max_tokens": 5}
    headers = {"authorization": f"Bearer {key}"}
    url = tidemark.url + "/v1/chat/completions"
    return {
        httpx.post(url, json=body, headers=headers, timeout=WAIT_SECONDS, verify=NO_TLS).status_code
        for _ in range(REQUESTS)
    }


def test_a_key_is_made_rotated_and_revoked_on_all_workers(machine: Machine) -> None:
    """Each worker looks twice a second, so all know within one; the log of no worker has a key."""
    assert POLL_SECONDS < 0.5
    tidemark = machine.serve("--config", str(machine.config(KEYED)), "--workers", "4", environ=TOKEN)
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 4, WAIT_SECONDS)
    at = ("--url", tidemark.url)
    made = printed(machine, "create", "--name", "app", "--models", "small,tiny", "--expires", "2099-01-01", *at)
    assert (made["tenant"], made["models"]) == ("app", ["small", "tiny"])
    wait_until(lambda: statuses(tidemark, made["key"]) == {200}, WAIT_SECONDS)
    rotated = printed(machine, "rotate", made["id"], *at)
    wait_until(lambda: statuses(tidemark, made["key"]) == {401}, WAIT_SECONDS)
    assert statuses(tidemark, rotated["key"]) == {200}
    listed = keys(machine, "list", *at).stdout
    assert made["id"] in listed
    assert rotated["key"] not in listed
    revoked = keys(machine, "revoke", made["id"], *at)
    assert revoked.stdout == f"Revoked app ({made['id']}).\n"
    wait_until(lambda: statuses(tidemark, rotated["key"]) == {401}, WAIT_SECONDS)
    assert "sk-tm-" not in tidemark.text


def test_the_key_alone_is_printed_so_that_a_script_can_take_it(machine: Machine) -> None:
    """What a person reads goes elsewhere; who has no token is told which variable has it."""
    tidemark = machine.serve("--config", str(machine.config(KEYED)), environ=TOKEN)
    made = keys(machine, "create", "--name", "app", "--models", "smallx", "--url", tidemark.url)
    assert made.stdout.startswith("sk-tm-")
    assert made.stdout.count("\n") == 1
    assert 'did you mean "small"?' in made.stderr
    assert "Nobody can show it again" in made.stderr
    again = keys(machine, "create", "--name", "app", "--url", tidemark.url)
    assert again.returncode == 1
    assert "has the name 'app' already" in again.stderr
    stranger = keys(machine, "list", "--url", tidemark.url, environ={"TIDEMARK_ADMIN_TOKEN": ""})
    assert stranger.returncode == 1
    assert "admin token" in stranger.stderr
    assert statuses(tidemark, made.stdout.strip()) == {403}
