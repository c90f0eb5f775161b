"""``POST /v1/completions``: legacy prompts are counted before they are sent, and carried as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client, benched
from tests.support.scripted import Answer, streamed

PATH = "/v1/completions"
LONG = "tide " * 3_000
WINDOW = 2_000


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("completions")) as bench:
        yield bench


@pytest.fixture(scope="module")
def client(bench: Bench) -> Client:
    """A client of a Tidemark whose model ``small`` has a window of 2,000 tokens."""
    return bench.client("completions", window=WINDOW)


def complete(client: Client, prompt: Any, **members: Any) -> httpx.Response:
    """Send a prompt."""
    return client.http.post(PATH, json={"model": "small", "prompt": prompt, **members}, headers=client.headers())


@pytest.fixture(autouse=True)
def script(bench: Bench) -> None:
    """The upstream answers every prompt."""
    bench.upstream.script = lambda _: Answer([b'{"object":"text_completion"}'])


@pytest.mark.parametrize(
    "prompt",
    [LONG, ["short", LONG], [7] * (WINDOW + 1), [[1], [7] * (WINDOW + 1)]],
    ids=["text", "texts", "tokens", "lists"],
)
def test_a_prompt_that_is_too_long_is_refused_before_it_is_sent(bench: Bench, client: Client, prompt: Any) -> None:
    """OpenAI's own error, with the numbers."""
    before = len(bench.upstream.received)
    answer = complete(client, prompt)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert answer.json()["error"]["param"] == "prompt"
    assert "2000 tokens" in answer.json()["error"]["message"]
    assert len(bench.upstream.received) == before


@pytest.mark.parametrize("prompt", ["short", ["a", "b"], [1, 2, 3], [[1], [2]], [7] * WINDOW, None, 7, [], [None]])
def test_other_prompts_are_carried(bench: Bench, client: Client, prompt: Any) -> None:
    """Also what is no prompt: the upstream says so."""
    assert complete(client, prompt).json() == {"object": "text_completion"}
    assert bench.upstream.last.json == {"model": "scripted", "prompt": prompt}


@pytest.mark.parametrize("mark", ["<|im_start|>user\n", "[INST] ", "<|start_header_id|>user", "<start_of_turn>user\n"])
def test_a_prompt_that_is_a_chat_template_is_left_alone(bench: Bench, client: Client, mark: str) -> None:
    """Its client counts by the model's own tokenizer, where a mark is one token."""
    assert complete(client, mark + LONG).status_code == 200
    assert bench.upstream.last.json["prompt"] == mark + LONG


def test_a_model_without_a_known_window_has_no_bound(bench: Bench) -> None:
    """A default is no knowledge; the upstream decides."""
    client = bench.client("unknown", config='upstream: "{base}"\n')
    answer = client.http.post(PATH, json={"model": "scripted-unknown", "prompt": LONG * 40})
    assert answer.status_code == 200


def test_a_stream_of_text_is_carried(bench: Bench, client: Client) -> None:
    """Every event as it comes."""
    bench.upstream.script = lambda _: streamed("one two")
    events = complete(client, "short", stream=True).text
    assert [json.loads(line[6:])["object"] for line in events.splitlines() if line.startswith("data: {")]
    assert events.endswith("data: [DONE]\n\n")
