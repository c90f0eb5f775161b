"""What real clients talk to: Tidemark with its own transport and a real store, before the scripted upstream."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.clients.programs import COMMAND_TOOLS, TALK_WINDOW
from tests.request.conftest import benched
from tests.support.scripted import Answer, Call, Received, ScriptedUpstream, Turn, tells
from tests.support.serving import NO_TLS
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.upstream.litellm import load as load_litellm

SAYS = Turn("Hello there from upstream.")
TOLD = Turn("It is all done now.")
LONG = Turn("It is a long talk about harbour berths by now.", input_tokens=30_000)
"""Says that the talk is longer than Codex wants it to be."""
AGENT_WINDOW = 40_000
SUMMARY = b"Summary of earlier turns"


@dataclass
class Site:
    """One Tidemark for libraries, one with a larger window for coding agents, and the upstream of both."""

    upstream: ScriptedUpstream
    url: str
    agents_url: str
    folder: Path

    def received(self, key: str) -> list[Received]:
        """What reached the upstream with a client's key."""
        return [request for request in self.upstream.received if key_of(request) == key]

    def conversations(self, url: str, key: str) -> int:
        """How many conversations are stored under a client's key."""
        headers = {"authorization": f"Bearer {key}"}
        listed = httpx.get(f"{url}/tidemark/conversations", headers=headers, verify=NO_TLS)
        return len(listed.json()["data"])


def skip_unless_installed(missing: str) -> None:
    """Skip a client that is not installed on this machine; CI requires every one."""
    if missing and not os.environ.get("CLIENTS_REQUIRED"):
        pytest.skip(missing)


def key_of(request: Received) -> str:
    """The credential of a request, in whichever header it came."""
    return request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")


def script(request: Received) -> Answer:
    """Answer with one text, or call the client's tool first where its key begins with ``sk-tools``."""
    if request.dialect and key_of(request).startswith("sk-compacts"):
        return tells(LONG)(request)
    if not request.dialect or not key_of(request).startswith("sk-tools"):
        return tells(SAYS)(request)
    body = request.json
    names = {tool.get("name") or tool.get("function", {}).get("name") for tool in body.get("tools") or ()}
    call = next((name for name in COMMAND_TOOLS if name in names), None)
    if any(result in json.dumps(body) for result in ("sunny in Paris", "tidemark-42")) or call is None:
        return tells(TOLD)(request)
    return tells(Turn(calls=(Call(call, json.dumps(COMMAND_TOOLS[call])),)))(request)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Everything a client needs; each client and scenario has a key of its own."""
    load_litellm().result(60)
    folder = tmp_path_factory.mktemp("site")
    with (
        EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as valkey,
        benched(valkey.url, folder) as bench,
    ):
        bench.upstream.script = script
        url = bench.start(own=True, window=TALK_WINDOW)
        yield Site(bench.upstream, url, bench.start(own=True, window=AGENT_WINDOW), folder)
