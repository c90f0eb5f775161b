"""A request that fits its model's window is sent, also where the reply then has less space than is reserved for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.dialects.messages.anthropic_talk import text, whole_reply
from tests.request.compaction.test_replayed_overflow import UNKNOWN, openai, shown
from tests.request.conftest import Bench, Client
from tests.request.dialects.test_messages_dialect import AnthropicClient
from tests.request.talk import assistant, history, user
from tests.support.scripted import Answer, Received, whole

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{context_window: {window}}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
"""
LESS = "the reply has less space"
AGENTS = 32_000
"""What Claude Code and opencode ask for, whatever the model."""
WORDINGS: dict[str, Callable[[int, int, int], str]] = {
    "openai": lambda window, sent, asked: (
        f"This model's maximum context length is {window} tokens. However, you requested {sent + asked} tokens "
        f"({sent} in the messages, {asked} in the completion). Please reduce the length of the messages or completion."
    ),
    "vllm": lambda window, sent, asked: (
        f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
        f"{window} tokens and your request has {sent} input tokens ({asked} > {window} - {sent})."
    ),
    "vllm 0.15": lambda window, sent, asked: (
        f"This model's maximum context length is {window} tokens. However, you requested {asked} output tokens and "
        f"your prompt contains at least {max(window - asked + 1, 1)} input tokens, for a total of at least "
        f"{window + 1} tokens. Please reduce the length of the input prompt or the number of requested output tokens. "
        f"(parameter=input_tokens, value={sent})"
    ),
    "vllm 0.11": lambda window, sent, asked: (
        f"You passed {sent} input tokens and requested {asked} output tokens. However, the model's context length is "
        f"only {window} tokens, resulting in a maximum input length of {window - asked} tokens."
    ),
}


def words(tokens: int) -> str:
    """A text of so many tokens."""
    return "word " * tokens


def holding(client: Client, window: int, wording: str, default: int = 0) -> Callable[[Received], Answer]:
    """An upstream that refuses what its window does not hold with the reply; ``default`` is that of who states none."""

    def script(request: Received) -> Answer:
        sent = client.http.post("/tidemark/count", content=request.body).json()["input_tokens"]
        asked = request.json.get("max_tokens", default)
        if sent + asked <= window:
            return whole("Fits.")
        return Answer([json.dumps(openai(WORDINGS[wording](window, sent, asked))).encode()], 400)

    return script


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """The test's own credential."""
    return str(request.node.nodeid)


def test_an_agent_begins_before_a_window_that_is_hardly_longer_than_its_reply(bench: Bench, key: str) -> None:
    """Claude Code's first word to a model of 32,768: some 15,600 tokens, and ``max_tokens: 32000``."""
    client = AnthropicClient(bench.client(key, config=CONFIG, window=32_768))
    bench.upstream.script = lambda _: Answer([whole_reply(text("Hello."))])
    got = client.ask([user("hi")], system=words(15_570), max_tokens=AGENTS)
    assert got.status_code == 200, got.text
    sent = bench.upstream.last.json
    assert (sent["max_tokens"], sent["system"]) == (AGENTS, words(15_570)), "promise 1"
    assert (got.headers["x-tidemark-action"], got.headers["x-tidemark-limit"]) == ("none", "29082")
    after = int(got.headers["x-tidemark-tokens-after"])
    told = f"the request is above its usual limit of 14746 tokens and leaves {32_768 - after} of the window's 32768"
    assert got.headers["x-tidemark-warning"] == f"{LESS}: {told}"


@pytest.mark.parametrize(
    ("window", "tokens", "stated"),
    [(32_768, 20_000, {"max_tokens": AGENTS}), (8192, 6000, {}), (8192, 7152, {}), (8192, 6000, {"max_tokens": 4096})],
)
def test_a_chat_that_fits_the_window_is_sent_as_it_came(
    bench: Bench, key: str, window: int, tokens: int, stated: dict[str, int]
) -> None:
    """With a large reply stated, and with none, for which the longest one is reserved."""
    client = bench.client(key, config=CONFIG, window=window)
    body = {"model": "small", "messages": [user(words(tokens))], **stated}
    got = client.post(body)
    assert got.status_code == 200, got.text
    assert bench.upstream.last.json == {**body, "model": "scripted"}
    assert got.headers["x-tidemark-warning"].startswith(LESS)
    assert got.headers["x-tidemark-limit"] == str(window - window // 16 - round(0.05 * window))


def test_what_can_be_compacted_keeps_the_whole_reserve(bench: Bench, key: str) -> None:
    """A summary comes before less space for the reply."""
    client = bench.client(key, config=CONFIG, window=8192)
    got = client.post({"model": "small", "messages": [*history(70), user("Now?")]})
    assert (got.status_code, got.headers["x-tidemark-action"]) == (200, "compacted")
    assert got.headers["x-tidemark-limit"] == str(8192 - 2048 - 410)
    assert int(got.headers["x-tidemark-tokens-after"]) <= 8192 - 2048 - 410
    assert "x-tidemark-warning" not in got.headers


def test_a_newest_message_above_the_usual_limit_is_sent_with_what_fits_beside_it(bench: Bench, key: str) -> None:
    """Earlier messages are summarized as far as the window asks for it, and the next turn is compacted as ever."""
    client = bench.client(key, config=CONFIG, window=8192)
    said = [*history(25), user(words(6000))]
    got = client.post({"model": "small", "messages": said})
    assert (got.status_code, got.headers["x-tidemark-action"]) == (200, "compacted"), got.text
    assert LESS in got.headers["x-tidemark-warning"]
    assert int(got.headers["x-tidemark-tokens-after"]) <= int(got.headers["x-tidemark-limit"]) == 8192 - 512 - 410
    assert bench.upstream.last.messages[-1] == said[-1]
    later = client.post({"model": "small", "messages": [*said, assistant("Hello there."), user("And now?")]})
    assert (later.status_code, later.headers["x-tidemark-action"]) == (200, "compacted")
    assert later.headers["x-tidemark-limit"] == str(8192 - 2048 - 410)
    assert "x-tidemark-warning" not in later.headers


def test_what_leaves_hardly_a_reply_is_refused_with_the_numbers(bench: Bench, key: str) -> None:
    """The least space for a reply is a sixteenth of the window; nothing is sent that leaves less."""
    got = bench.client(key, config=CONFIG, window=8192).post({"model": "small", "messages": [user(words(7400))]})
    assert (got.status_code, got.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "8192 tokens, of which 7270 are left" in got.json()["error"]["message"]
    assert not bench.upstream.received


@pytest.mark.parametrize("wording", WORDINGS)
@pytest.mark.parametrize(("window", "asked"), [(4000, 1900), (4000, 3900)])
def test_an_upstream_that_holds_the_whole_reply_judges_and_teaches_no_smaller_window(
    bench: Bench, key: str, wording: str, window: int, asked: int
) -> None:
    """Its own words are the answer, as if it had been asked straight; what can be compacted then fits at once."""
    client = bench.client(key, config=CONFIG, window=window)
    bench.upstream.script = holding(client, window, wording)
    got = client.post({"model": "small", "messages": [user(words(2500))], "max_tokens": asked})
    assert got.status_code == 400
    assert str(asked) in got.json()["error"]["message"]
    assert len(bench.upstream.received) == 1
    assert shown(client, "small")["window"] == window
    later = client.post({"model": "small", "messages": [*history(18), user("Now?")], "max_tokens": 2500})
    assert (later.status_code, later.headers["x-tidemark-limit"]) == (200, str(window - 2500 - 200))
    assert len(bench.upstream.received) == 2, "the whole reply is reserved without another refusal"


@pytest.mark.parametrize("wording", ["openai", "vllm"])
def test_an_upstreams_own_reply_length_teaches_no_smaller_window(bench: Bench, key: str, wording: str) -> None:
    """Where the request states none, and the upstream keeps so much free as Tidemark does."""
    client = bench.client(key, config=CONFIG, window=8192)
    bench.upstream.script = holding(client, 8192, wording, default=4096)
    got = client.post({"model": "small", "messages": [user(words(6000))]})
    assert (got.status_code, len(bench.upstream.received)) == (400, 1)
    assert shown(client, "small")["window"] == 8192


def test_a_window_that_proves_smaller_is_filled_by_the_replay_as_well(bench: Bench, key: str) -> None:
    """The newest message is above the usual limit of the learned window, and fits beside a summary."""
    client = bench.client(key, config=UNKNOWN)

    def script(request: Received) -> Answer:
        sent = client.http.post("/tidemark/count", content=request.body).json()["input_tokens"]
        told = f"prompt is too long: {sent} tokens > 4000 maximum"
        return whole("Fits.") if sent <= 4000 else Answer([json.dumps(openai(told)).encode()], 400)

    bench.upstream.script = script
    said: list[dict[str, Any]] = [*history(18), user(words(2500))]
    got = client.post({"model": "house-model", "messages": said, "max_tokens": 3900})
    assert got.status_code == 200, got.text
    assert len(bench.upstream.received) == 2
    assert got.headers["x-tidemark-action"] == "compacted"
    assert "sent again" in got.headers["x-tidemark-warning"]
    assert LESS in got.headers["x-tidemark-warning"]
