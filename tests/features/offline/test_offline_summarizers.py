"""``POST /tidemark/compact`` and ``tidemark compact`` ask the policy's summarizer, and say what is wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import history, user
from tests.support.scripted import Answer, Received, error, says, whole

SUMMARY = "They spoke of points, one after the other, and agreed on the tide tables."
CONFIG = """
model_list:
  - {{model_name: small, litellm_params: {{model: openai/scripted, api_base: "{base}"}}}}
  - {{model_name: cheap, litellm_params: {{model: openai/of-the-summarizer, api_base: "{base}", timeout: 0.3}}}}
  - {{model_name: away, litellm_params: {{model: openai/scripted, api_base: "http://127.0.0.1:9/v1"}}}}
compaction:
  defaults: {{template: coding, summarizer: {{model: {more}}}}}
"""
REQUEST = {"model": "small", "messages": [*history(20), user("And now?")]}
REMEDY = "use another summarizer model or template, or the strategy extractive"


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests: nothing is stored that they could share."""
    with benched(store_url, tmp_path_factory.mktemp("offline")) as made:
        yield made


@pytest.fixture(scope="module")
def client(bench: Bench) -> Client:
    """A client of a Tidemark whose summarizer is another model than the conversation's."""
    return bench.client("offline", config=CONFIG, more="cheap")


def compact(client: Client, strategy: str = "llm") -> httpx.Response:
    """Compact the request."""
    asked = {"request": REQUEST, "max_tokens": 600, "strategy": strategy}
    return client.http.post("/tidemark/compact", json=asked, headers=client.headers())


@pytest.mark.parametrize("strategy", ["llm", "hybrid"])
def test_the_policys_template_and_summarizer_are_used(bench: Bench, client: Client, strategy: str) -> None:
    """As for a request that the proxy compacts; the strategy alone is chosen by the sender."""
    bench.upstream.script = says(SUMMARY)
    assert compact(client, strategy).status_code == 200
    assert bench.upstream.last.json["model"] == "of-the-summarizer"
    assert bench.upstream.last.messages[0]["content"].startswith("You summarize programming conversations.")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (whole("I'm sorry, I cannot help with that."), "refus"),
        (whole(None, refusal="No."), "refus"),
        (whole("Done."), "too short"),
        (whole(None, tool_calls=[{"id": "c", "type": "function"}]), "tool call"),
    ],
)
def test_a_rejected_answer_is_a_502_with_words(bench: Bench, client: Client, answer: Answer, told: str) -> None:
    """The message names model and template, what was wrong with the answer, and what to do."""
    bench.upstream.script = lambda _: answer
    got = compact(client)
    assert got.status_code == 502
    found = got.json()["error"]
    assert (found["type"], found["code"], found["param"]) == ("server_error", "summary_rejected", None)
    assert found["message"].startswith("The summarizer (cheap, template coding) gave no usable summary: ")
    assert told in found["message"]
    assert REMEDY in found["message"]


@pytest.mark.parametrize(
    ("script", "status", "code", "told"),
    [
        (lambda _: error(401, "bad key"), 502, "upstream_error", "status 401: bad key"),
        (lambda _: Answer([b"<html>"]), 502, "upstream_error", "no JSON"),
        (lambda _: whole(""), 502, "upstream_error", "without any text"),
        (lambda _: Answer([b"{"], breaks=True), 502, "upstream_incomplete", "in the middle"),
        (lambda _: Answer([b"{}"], before_headers=20), 504, "upstream_timeout", "within 0.3 seconds"),
    ],
)
def test_a_summarizer_that_does_not_answer_is_told_by_its_name(
    bench: Bench, client: Client, script: Callable[[Received], Answer], *, status: int, code: str, told: str
) -> None:
    """With the status and the code of any other upstream's failure."""
    bench.upstream.script = script
    got = compact(client)
    assert (got.status_code, got.json()["error"]["code"]) == (status, code)
    message = got.json()["error"]["message"]
    assert message.startswith("The summarizer (cheap, template coding) gave no usable summary: ")
    assert told in message


@pytest.mark.parametrize(
    ("model", "code", "told"),
    [("away", "upstream_unreachable", "cannot be reached"), ("nothing-like-it", "summary_rejected", "is not served")],
)
def test_a_summarizer_that_is_not_there_is_a_502(bench: Bench, model: str, code: str, told: str) -> None:
    """Whether nothing listens at its address, or nothing serves its name."""
    got = compact(bench.client("offline", config=CONFIG, more=model))
    assert (got.status_code, got.json()["error"]["code"]) == (502, code)
    assert f"({model}, template coding)" in got.json()["error"]["message"]
    assert told in got.json()["error"]["message"]


def test_the_small_model_of_auto_is_told_with_its_provider(bench: Bench) -> None:
    """The message says which model answered, since ``auto`` is none."""
    bench.upstream.script = says("Done.")
    got = compact(bench.client("offline", config=CONFIG, more="auto"))
    assert got.json()["error"]["message"].startswith("The summarizer (openai/scripted, template coding) ")


@pytest.mark.e2e
def test_the_command_asks_the_same_and_ends_with_1(bench: Bench, tmp_path: Path) -> None:
    """``tidemark compact``: the policy's summarizer, and one line if its answer is rejected."""
    (tmp_path / "tidemark.yaml").write_text(CONFIG.format(base=f"{bench.upstream_url}/v1", more="cheap"))
    words = ["compact", "--config", "tidemark.yaml", "--strategy", "llm", "--max-tokens", "600"]

    def run() -> subprocess.CompletedProcess[bytes]:
        command, environ = [sys.executable, "-m", "tidemark", *words], os.environ | {"TIDEMARK_DATA_DIR": str(tmp_path)}
        asked = json.dumps(REQUEST).encode()
        return subprocess.run(command, cwd=tmp_path, env=environ, input=asked, capture_output=True, check=False)

    bench.upstream.script = says(SUMMARY)
    assert run().returncode == 0
    assert bench.upstream.last.json["model"] == "of-the-summarizer"
    assert bench.upstream.last.messages[0]["content"].startswith("You summarize programming conversations.")
    bench.upstream.script = says("I'm sorry, I cannot help with that.")
    done = run()
    assert (done.returncode, done.stdout) == (1, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("tidemark: The summarizer (cheap, template coding) gave no usable summary: ")
    assert REMEDY in line
