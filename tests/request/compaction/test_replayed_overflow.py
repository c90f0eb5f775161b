"""An upstream's own "this does not fit": each provider's words teach the window, and the request is replayed once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import SSE_HEADERS, Answer, Received, error, streamed, whole
from tidemark.codings import opened_reply

UNKNOWN = """
upstream: "{base}/"
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
"""
WINDOW = 1200
"""The upstream's true one, in tokens."""
MODEL = "overflowing-model"
"""No other test uses it: workers write what they see of a model to the store, which these tests share."""
LONG: list[Said] = [*history(18), user("Now?")]
"""Some 2,300 tokens."""


def openai(message: str) -> dict[str, Any]:
    """OpenAI's envelope, which most compatible servers use too."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": None}}


def coded(message: str) -> dict[str, Any]:
    """The same with OpenAI's code."""
    return {"error": {**openai(message)["error"], "code": "context_length_exceeded"}}


REQUESTED = WINDOW + 87
WORDINGS: dict[str, tuple[int, Any]] = {
    "openai": (
        400,
        coded(
            f"This model's maximum context length is {WINDOW} tokens. However, your messages resulted in {REQUESTED} "
            "tokens. Please reduce the length of the messages."
        ),
    ),
    "openai gpt-5": (
        400,
        coded(
            f"Input tokens exceed the configured limit of {WINDOW} tokens. Your messages resulted in {REQUESTED} "
            "tokens."
        ),
    ),
    "anthropic": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": f"prompt is too long: {REQUESTED} tokens > {WINDOW} maximum",
            },
        },
    ),
    "anthropic with the reply": (
        400,
        openai(f"input length and `max_tokens` exceed context limit: {REQUESTED} + 100 > {WINDOW}, decrease input"),
    ),
    "gemini": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": f"The input token count ({REQUESTED}) exceeds the maximum number of tokens allowed "
                    f"({WINDOW}).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": REQUESTED,
                "n_ctx": WINDOW,
            }
        },
    ),
    "vllm": (
        400,
        {
            "object": "error",
            "message": f"This model's maximum context length is {WINDOW} tokens. However, you requested "
            f"{REQUESTED + 100} tokens ({REQUESTED} in the messages, 100 in the completion). Please reduce the "
            "length of the messages.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "vllm 0.11": (
        400,
        openai(
            f"You passed {REQUESTED} input tokens and requested 100 output tokens. However, the model's context "
            f"length is only {WINDOW} tokens, resulting in a maximum input length of {WINDOW - 100} tokens."
        ),
    ),
    "vllm 0.15": (
        400,
        openai(
            f"This model's maximum context length is {WINDOW} tokens. However, you requested 100 output tokens and "
            f"your prompt contains at least {WINDOW - 99} input tokens, for a total of at least {WINDOW + 1} tokens. "
            f"Please reduce the length of the input prompt. (parameter=input_tokens, value={WINDOW - 99})"
        ),
    ),
    "sglang": (
        400,
        {
            "object": "error",
            "message": f"The input ({REQUESTED} tokens) is longer than the model's context length ({WINDOW} tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "openrouter": (
        400,
        {
            "error": {
                "message": f"This endpoint's maximum context length is {WINDOW} tokens. However, you requested about "
                f"{REQUESTED + 100} tokens ({REQUESTED - 200} of text input, 200 of tool input, 100 in the output). "
                "Please reduce the length of either one, or use the context-compression plugin.",
                "code": 400,
                "metadata": {"provider_name": None},
            }
        },
    ),
    "openrouter, a provider's": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": json.dumps(
                        openai(f"Input length ({REQUESTED}) exceeds model's maximum context length ({WINDOW}).")
                    )
                },
            }
        },
    ),
    "fireworks": (400, openai(f"The prompt is too long: {REQUESTED}, model maximum context length: {WINDOW}")),
    "qwen": (400, openai(f"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {WINDOW}]")),
    "kimi": (
        400,
        openai(f"Invalid request: Your request exceeded model token limit: {WINDOW} (requested: {REQUESTED})"),
    ),
    "cerebras": (
        400,
        coded(
            "Please reduce the length of the messages or completion. Current length is "
            f"{REQUESTED} while limit is {WINDOW}"
        ),
    ),
    "mistral": (
        400,
        {
            "object": "error",
            "message": f"Prompt contains {REQUESTED} tokens and 0 draft tokens, too large for model with {WINDOW} "
            "maximum context length",
            "type": "invalid_request_prompt",
        },
    ),
    "lm studio": (
        400,
        {"error": f"the model is loaded with context length of only {WINDOW} tokens, which is not enough"},
    ),
}
NUMBERLESS: dict[str, tuple[int, Any]] = {
    "ollama": (400, {"error": "the input length exceeds the context length"}),
    "ollama, as an OpenAI server": (500, openai("the input length exceeds the context length")),
    "llama.cpp, older": (
        500,
        {"error": {"code": 500, "message": "the request exceeds the available context size. try increasing it"}},
    ),
    "minimax": (400, openai("invalid params, context window exceeds limit (2013)")),
    "glm": (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    "openai responses": (400, coded("Your input exceeds the context window of this model. Please adjust your input.")),
}


@pytest.fixture
def unknown(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client whose model nobody knows anything of: its window is assumed to be 128,000 tokens."""
    return bench.client(request.node.nodeid, config=UNKNOWN)


def refusing(client: Client, answer: tuple[int, Any]) -> Callable[[Received], Answer]:
    """An upstream that takes ``WINDOW`` tokens less 100 for the reply, and refuses more in a provider's words."""

    def script(request: Received) -> Answer:
        told = client.http.post("/tidemark/count", content=request.body).json()["input_tokens"]
        if told <= WINDOW - 100:
            return whole("Fits.")
        status, body = answer
        return Answer([json.dumps(body).encode()], status)

    return script


def shown(client: Client, model: str = MODEL) -> dict[str, Any]:
    """What GET /tidemark/models says of a model to a client."""
    got = client.http.get(f"/tidemark/models/{model}", headers=client.headers())
    assert got.status_code == 200, got.text
    told: dict[str, Any] = got.json()
    return told


@pytest.mark.parametrize("wording", WORDINGS)
def test_each_wording_is_learned_and_replayed_exactly_once(bench: Bench, unknown: Client, wording: str) -> None:
    """The window is the upstream's number, kept and shown as ``api``; the next request needs no second attempt."""
    bench.upstream.script = refusing(unknown, WORDINGS[wording])
    got = unknown.chat(LONG, model=MODEL)
    assert got.status_code == 200, got.text
    assert [len(one.messages) < len(LONG) for one in bench.upstream.received] == [False, True]
    assert bench.upstream.received[0].messages == LONG
    assert bench.upstream.last.messages[-1] == LONG[-1]
    assert got.headers["x-tidemark-action"] == "compacted"
    assert f"learned {WINDOW} tokens and sent again" in got.headers["x-tidemark-warning"]
    told = shown(unknown)
    assert (told["window"], told["max_input_tokens"], told["source"]) == (WINDOW, WINDOW, "api")
    later = unknown.chat([*LONG, assistant("Fits."), user("And now?")], model=MODEL)
    assert later.status_code == 200
    assert later.headers["x-tidemark-action"] == "reused"
    assert len(bench.upstream.received) == 3


@pytest.mark.parametrize("wording", NUMBERLESS)
def test_words_without_a_number_teach_a_smaller_window(bench: Bench, unknown: Client, wording: str) -> None:
    """A fifth less than what was sent; replayed once all the same."""
    bench.upstream.script = refusing(unknown, NUMBERLESS[wording])
    got = unknown.chat(LONG[-25:], model=MODEL)
    assert got.status_code == 200, got.text
    assert len(bench.upstream.received) == 2
    told = shown(unknown)
    assert told["source"] == "api"
    sent = unknown.http.post("/tidemark/count", content=bench.upstream.received[0].body).json()["input_tokens"]
    assert told["window"] == int(0.8 * sent)


def test_a_second_overflow_passes_through_unchanged(bench: Bench, unknown: Client) -> None:
    """Exactly one replay: what the upstream says then is the client's, to the byte."""
    second = error(413, "prompt is too long: 2000 tokens > 900 maximum", code="second", headers=[(b"x-own", b"1")])
    answers = iter([Answer([json.dumps(WORDINGS["openai"][1]).encode()], 400), second])
    bench.upstream.script = lambda _: next(answers)
    got = unknown.chat(LONG, model=MODEL)
    assert got.status_code == 413
    assert got.content == second.pieces[0]
    assert got.headers["x-own"] == "1"
    assert len(bench.upstream.received) == 2
    assert "sent again" in got.headers["x-tidemark-warning"]


def test_a_stream_is_replayed_before_its_first_byte(bench: Bench, unknown: Client) -> None:
    """The client sees one answer, as if the window had been known."""

    def script(request: Received) -> Answer:
        if len(request.messages) == len(LONG):
            return Answer([b'{"error": "the input length exceeds the context length"}'], 400)
        return streamed("All is well.")

    bench.upstream.script = script
    got = unknown.post({"model": MODEL, "messages": LONG, "max_tokens": 100, "stream": True})
    assert got.status_code == 200
    assert "well." in got.text
    assert got.text.rstrip().endswith("data: [DONE]")
    assert "error" not in got.text
    assert len(bench.upstream.received) == 2


def test_a_stream_that_only_says_that_it_was_too_long_is_replayed(
    bench: Bench, unknown: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LM Studio answers with status 200, and says in the only event what others say by the status."""
    monkeypatch.setattr(opened_reply, "HOLD_SECONDS", 20.0)  # also on a busy machine
    told = json.dumps(WORDINGS["lm studio"][1]).encode()

    def script(request: Received) -> Answer:
        if len(request.messages) == len(LONG):
            return Answer([b": one moment\n\n", b"event: error\ndata: " + told + b"\n\n"], headers=list(SSE_HEADERS))
        return streamed("All is well.")

    bench.upstream.script = script
    got = unknown.post({"model": MODEL, "messages": LONG, "max_tokens": 100, "stream": True})
    assert ("well." in got.text, "error" in got.text, len(bench.upstream.received)) == (True, False, 2)
    assert shown(unknown)["window"] == WINDOW


@pytest.mark.parametrize("stream", [False, True])
def test_a_body_of_status_200_that_only_says_that_it_was_too_long_is_replayed(
    bench: Bench, unknown: Client, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """OpenRouter gives some of its providers' refusals so; clients would find no reply in it."""
    monkeypatch.setattr(opened_reply, "HOLD_SECONDS", 20.0)  # also on a busy machine
    told = json.dumps(WORDINGS["openrouter"][1]).encode()

    def script(request: Received) -> Answer:
        if len(request.messages) == len(LONG):
            return Answer([b"\n         \n", told])
        return streamed("All is well.") if stream else whole("All is well.")

    bench.upstream.script = script
    got = unknown.post({"model": MODEL, "messages": LONG, "max_tokens": 100, "stream": stream})
    assert ("well." in got.text, "error" in got.text, len(bench.upstream.received)) == (True, False, 2)
    assert shown(unknown)["window"] == WINDOW


def test_a_body_of_status_200_with_another_error_is_the_clients(bench: Bench, unknown: Client) -> None:
    """To the byte: it is not for Tidemark to say what it means."""
    told = b'{"error":{"message":"Rate limit exceeded: free-models-per-day","code":429},"user_id":"u"}'
    bench.upstream.script = lambda _: Answer([told])
    got = unknown.chat(LONG, model=MODEL)
    assert (got.status_code, got.content, len(bench.upstream.received)) == (200, told, 1)
    assert shown(unknown)["source"] == "default"


def test_nothing_is_replayed_where_nothing_can_be_made_smaller(bench: Bench, unknown: Client) -> None:
    """One message of the user: the upstream's refusal is the answer, and the window is known from now on."""
    bench.upstream.script = refusing(unknown, WORDINGS["openai"])
    got = unknown.chat([user("word " * 3000)], model=MODEL)
    assert got.status_code == 400
    assert got.json() == WORDINGS["openai"][1]
    assert len(bench.upstream.received) == 1
    assert shown(unknown)["window"] == WINDOW
    again = unknown.chat([user("word " * 3000)], model=MODEL)
    assert (again.status_code, len(bench.upstream.received)) == (400, 1)
    assert f"maximum context length is {WINDOW} tokens" in again.json()["error"]["message"]


def test_off_replays_nothing(bench: Bench, unknown: Client) -> None:
    """``X-Tidemark-Summarize: off``: the upstream judges."""
    bench.upstream.script = refusing(unknown, WORDINGS["openai"])
    assert unknown.chat(LONG, model=MODEL, summarize="off").status_code == 400
    assert len(bench.upstream.received) == 1


def test_a_lesson_is_its_own_credentials_and_the_operators_to_see(bench: Bench, unknown: Client) -> None:
    """Promise 8: an error may quote what was sent, so nobody else's window follows it, or shows it."""
    bench.upstream.script = refusing(unknown, WORDINGS["openai"])
    unknown.chat(LONG, model=MODEL)
    stranger = Client(unknown.http, "another key")
    away = {**stranger.headers(), "via": "1.1 somewhere"}  # not this machine's operator
    told = unknown.http.get(f"/tidemark/models/{MODEL}", headers=away).json()
    assert told.get("window") != WINDOW
    bench.upstream.script = lambda _: whole("Fits.")
    assert stranger.chat(LONG, model=MODEL).headers["x-tidemark-action"] == "none"
    listed = unknown.http.get("/tidemark/models").json()["data"]
    assert [(one["window"], one["source"]) for one in listed if one["model"] == MODEL] == [(WINDOW, "api")]


def test_a_lesson_outlives_its_worker_and_stays_its_credentials_own(
    bench: Bench, unknown: Client, request: pytest.FixtureRequest
) -> None:
    """Another worker compacts to the learned window before the upstream refuses; another credential learns itself."""
    bench.upstream.script = refusing(unknown, WORDINGS["openai"])
    assert unknown.chat(LONG, model=MODEL).status_code == 200
    other = bench.client(unknown.key, config=UNKNOWN)
    bench.upstream.received.clear()
    again = other.chat([user("Another conversation."), *LONG], model=MODEL)
    assert again.headers["x-tidemark-action"] == "compacted"
    assert len(bench.upstream.received) == 1
    assert shown(other)["window"] == WINDOW
    stranger = Client(other.http, f"{request.node.nodeid} stranger")
    bench.upstream.received.clear()
    assert stranger.chat(LONG, model=MODEL).status_code == 200
    assert len(bench.upstream.received) == 2


def test_a_configured_window_that_proves_too_large_is_shown_smaller(bench: Bench, client: Client) -> None:
    """What a person wrote stays theirs (``manual``), as far as the upstream bears it out."""
    bench.upstream.script = refusing(client, WORDINGS["vllm"])
    got = client.chat(LONG[-25:])
    assert got.status_code == 200, got.text
    assert len(bench.upstream.received) == 2
    told = shown(client, "small")
    assert (told["window"], told["source"]) == (WINDOW, "manual")


STRICT = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 4000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
"""


def holding_both(client: Client, window: int) -> Callable[[Received], Answer]:
    """An upstream that refuses what its window does not hold together with the whole reply, in vLLM's words."""

    def script(request: Received) -> Answer:
        sent = client.http.post("/tidemark/count", content=request.body).json()["input_tokens"]
        asked = request.json["max_tokens"]
        if sent + asked <= window:
            return whole("Fits.")
        told = (
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
            f"{window} tokens and your request has {sent} input tokens ({asked} > {window} - {sent})."
        )
        return Answer([json.dumps(openai(told)).encode()], 400)

    return script


def test_a_client_that_asks_for_long_replies_is_served(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A reply of nearly the whole window is a bound; what is forwarded of it stays the client's own (promise 1)."""
    client = bench.client(request.node.nodeid, config=STRICT)
    body = {"model": "small", "messages": LONG, "max_tokens": 3900}
    got = client.post(body)
    assert got.status_code == 200, got.text
    assert (got.headers["x-tidemark-action"], got.headers["x-tidemark-limit"]) == ("none", "3600")
    assert bench.upstream.last.json == {**body, "model": "scripted"}


def test_a_refusal_for_the_reply_alone_keeps_the_window_and_makes_room(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """Sent again so that the whole reply fits; the next request does at once, and a shorter reply is cut no further."""
    client = bench.client(request.node.nodeid, config=STRICT)
    bench.upstream.script = holding_both(client, 4000)
    got = client.post({"model": "small", "messages": LONG, "max_tokens": 2600})
    assert got.status_code == 200, got.text
    assert [one.json["max_tokens"] for one in bench.upstream.received] == [2600, 2600]
    assert "does not hold the input and the whole reply" in got.headers["x-tidemark-warning"]
    assert got.headers["x-tidemark-limit"] == str(4000 - 2600 - 200)
    assert shown(client, "small")["window"] == 4000
    again = client.post({"model": "small", "messages": [user("Another talk."), *LONG], "max_tokens": 2600})
    assert (again.status_code, len(bench.upstream.received)) == (200, 3)
    short = client.post({"model": "small", "messages": LONG, "max_tokens": 100})
    assert (short.status_code, short.headers["x-tidemark-limit"]) == (200, "3700")
    later = bench.client(client.key, config=STRICT)
    assert later.post({"model": "small", "messages": LONG, "max_tokens": 2600}).headers["x-tidemark-limit"] == "1200"


def test_a_reply_that_leaves_no_room_is_the_upstreams_to_refuse(bench: Bench, request: pytest.FixtureRequest) -> None:
    """As if the client had asked it straight: its own words, and nothing is learned that would refuse the next one."""
    client = bench.client(request.node.nodeid, config=STRICT)
    bench.upstream.script = holding_both(client, 4000)
    for _ in range(2):
        got = client.post({"model": "small", "messages": LONG, "max_tokens": 3900})
        assert got.status_code == 400
        assert "is too large: 3900" in got.json()["error"]["message"]
    assert len(bench.upstream.received) == 2
    bench.upstream.script = lambda _: whole("Fits.")
    assert client.post({"model": "small", "messages": LONG, "max_tokens": 3900}).status_code == 200
