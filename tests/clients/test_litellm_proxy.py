"""Before and behind LiteLLM's proxy a long talk goes on, as docs/litellm-proxy.md says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.docs.pages import ROOT, blocks
from tests.request.conftest import WINDOW, Bench, benched
from tests.support.clusters import free_ports
from tests.support.scripted import Turn, tells
from tests.support.waiting import wait_until
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.upstream.litellm import load as load_litellm

PROGRAM = os.environ.get("LITELLM_PROXY") or shutil.which("litellm", path=str(ROOT / ".bench" / "litellm" / "bin"))
"""Where LiteLLM's proxy is; it takes 580 MB, so the suite does not install it."""
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PROGRAM, reason="LiteLLM's proxy is not installed: make bench-peers"),
]
BEFORE, BEHIND, IDENTITY = (block.text for block in blocks("yaml") if block.page == "docs/litellm-proxy.md")
"""The files of the page, in its order."""
KEY = f"sk-{'0123456789abcdef' * 4}"
"""LiteLLM's own key: it refuses to start without one, or with a short one."""
SAYS = Turn("Hello there from upstream.")
KEYS = {"authorization": f"Bearer {KEY}"}
SUMMARY = b"Summary of earlier turns"
QUESTIONS = [f"Point {turn}: " + " ".join(f"w{turn}x{word % 7}" for word in range(120)) for turn in range(8)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A store and a scripted upstream."""
    load_litellm().result(60)
    (tmp_path / "valkey").mkdir()
    with EmbeddedValkey(tmp_path / "valkey") as valkey, benched(valkey.url, tmp_path) as bench:
        bench.upstream.script = tells(SAYS)
        yield bench


@contextmanager
def litellm(config: str, folder: Path) -> Iterator[str]:
    """LiteLLM's proxy as a process of its own; its address, with `/v1`."""
    (port,) = free_ports(1)
    path, log = folder / "litellm.yaml", folder / "litellm.log"
    path.write_text(config, encoding="utf-8")
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"}
    command = [str(PROGRAM), "--config", str(path), "--port", str(port), "--host", "127.0.0.1"]
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/health/liveliness").status_code == 200
        return False

    environ |= {"OPENAI_API_KEY": "sk-own", "LITELLM_MASTER_KEY": KEY}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
    try:
        wait_until(lambda: answers() or process.poll() is not None, 120)
        assert process.poll() is None, log.read_text()
        yield f"{url}/v1"
    finally:
        process.terminate()
        process.wait(30)


def literal(config: str) -> str:
    """A configuration in which the bench fills nothing in."""
    return config.replace("{", "{{").replace("}", "}}")


def talk(url: str, model: str, **headers: str) -> list[httpx.Response]:
    """Hold a talk that is longer than the window, with all messages in each request."""
    messages: list[dict[str, str]] = []
    answers = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        body = {"model": model, "messages": messages, "max_tokens": 100}
        answers.append(httpx.post(f"{url}/chat/completions", json=body, headers=KEYS | headers, timeout=60))
        assert answers[-1].status_code == 200, answers[-1].text
        messages.append({"role": "assistant", "content": answers[-1].json()["choices"][0]["message"]["content"]})
    return answers


def test_a_talk_goes_through_tidemark_and_then_litellm(bench: Bench, tmp_path: Path) -> None:
    """LiteLLM gets the summary, and the client's key."""
    entry = f"{{model: openai/small, api_key: k, api_base: {bench.upstream_url}/v1}}"
    with litellm(f"model_list: [{{model_name: small, litellm_params: {entry}}}]", tmp_path) as behind:
        config = re.sub(r"http://[^/]+/v1", behind, BEFORE)
        config += "compaction: {defaults: {strategy: extractive, threshold: 2000}}\n"
        url = bench.start(own=True, config=literal(config))
        answers = talk(f"{url}/v1", "small")
    assert SUMMARY in bench.upstream.received[-1].body
    assert answers[-1].headers["x-tidemark-action"] in {"compacted", "reused"}


def test_a_talk_goes_through_litellm_and_then_tidemark(bench: Bench, tmp_path: Path) -> None:
    """Each user is a tenant by a header, and reads Tidemark's headers under LiteLLM's names."""
    own = bench.start(own=True, config=WINDOW + literal(IDENTITY))
    config = re.sub(r"http://[^/]+/v1", f"{own}/v1", BEHIND).replace("openai/gpt-4o", "openai/small")
    forward = "general_settings: {forward_client_headers_to_llm_api: true}\n"
    with litellm(config + forward, tmp_path) as url:
        ada = talk(url, "gpt-4o", **{"x-user-id": "ada"})
        bob = talk(url, "gpt-4o", **{"x-user-id": "bob"})
    assert SUMMARY in bench.upstream.received[-1].body
    assert ada[-1].headers["llm_provider-x-tidemark-action"] in {"compacted", "reused"}
    name = "llm_provider-x-tidemark-conversation"
    assert len({answer.headers[name] for answer in ada}) == 1
    assert ada[-1].headers[name] != bob[-1].headers[name]
