"""Every member of chat completions, of OpenAI and of other vendors, travels both ways as it came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import assistant, history, user
from tests.support.scripted import SSE_HEADERS, Answer, says

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "tide",
        "strict": True,
        "schema": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
TOOL = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}, "strict": True}}
REQUEST_MEMBERS: dict[str, Any] = {
    "n": 3,
    "logprobs": True,
    "top_logprobs": 5,
    "response_format": SCHEMA,
    "tools": [TOOL, {"type": "custom", "custom": {"name": "sh", "format": {"type": "text"}}}],
    "tool_choice": {"type": "function", "function": {"name": "tide"}},
    "parallel_tool_calls": False,
    "store": True,
    "metadata": {"talk": "7", "user_id": '{"a": 1}'},
    "service_tier": "flex",
    "prediction": {"type": "content", "content": [{"type": "text", "text": "def f():"}]},
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
    "reasoning_effort": "minimal",
    "verbosity": "low",
    "web_search_options": {"search_context_size": "low"},
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "logit_bias": {"50256": -100},
    "seed": -(2**62),
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "reasoning": {"max_tokens": 2000, "exclude": False},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "chat_template_kwargs": {"enable_thinking": False},
    "provider": {"order": ["a", "b"], "allow_fallbacks": False},
    "transforms": [],
    "guided_json": {"type": "object"},
    "min_p": 0.050,
    "cache_prompt": True,
    "id_slot": -1,
    "extra_body": {"x": [1.50, None, {"y": "\u2028"}]},
}
STORED = {"history": "stored", "conversation": "members"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
FILE = {"type": "file", "file": {"file_id": "file-1"}}
LOGPROBS = {"content": [{"token": "Fine", "logprob": -0.1, "bytes": [70], "top_logprobs": []}], "refusal": None}


def raw(value: Any) -> bytes:
    """JSON with marks by which a rewritten copy would show."""
    return json.dumps(value, indent=1).replace("\n", "\n ").encode()


def asking(members: dict[str, Any], messages: list[dict[str, Any]]) -> bytes:
    """A body with members before and after the messages."""
    pieces = [
        b'"model": "small"',
        *(json.dumps(name).encode() + b" : " + raw(value) for name, value in members.items()),
    ]
    pieces.insert(len(pieces) // 2, b'"messages": ' + json.dumps(messages).encode())
    return b"{" + b", ".join(pieces) + b"}"


def events(*chunks: dict[str, Any]) -> bytes:
    """A stream of chunks."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return b"".join(b"data: " + json.dumps({**head, **one}).encode() + b"\n\n" for one in chunks) + b"data: [DONE]\n\n"


def choice(index: int, delta: dict[str, Any], reason: str | None = None, **members: Any) -> dict[str, Any]:
    """A chunk with a piece of one choice."""
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason, **members}]}


def answered(bench: Bench, client: Client, data: bytes, *, stream: bool, **members: Any) -> dict[str, Any]:
    """The message that the next request of a stored history has for an answer; the client got its very bytes."""
    kind = list(SSE_HEADERS) if stream else [(b"content-type", b"application/json")]
    bench.upstream.script = lambda _: Answer([data], headers=kind)
    got = client.post({"model": "small", "messages": [user("hi")], "stream": stream, **members}, **STORED)
    assert (got.status_code, got.content) == (200, data)
    bench.upstream.script = says("Yes.")
    client.post({"model": "small", "messages": [user("Sure?")]}, **STORED)
    asked, answer, sure = bench.upstream.last.messages
    assert (asked, sure) == (user("hi"), user("Sure?"))
    return answer


@pytest.mark.parametrize("name", REQUEST_MEMBERS)
def test_each_member_of_a_request_keeps_its_bytes(bench: Bench, client: Client, name: str) -> None:
    """Known here or not: where only the model's name changes, and where the messages are compacted."""
    value = REQUEST_MEMBERS[name]
    for messages, action in (([user("hi")], "none"), ([*history(20), user("Now?")], "compacted")):
        got = client.post(asking({name: value}, messages))
        assert (got.status_code, got.headers["x-tidemark-action"]) == (200, action), got.text
        assert json.dumps(name).encode() + b":" + raw(value) in bench.upstream.last.body
        assert set(bench.upstream.last.json) == {"model", "messages", name}


def test_all_members_together_keep_their_order(bench: Bench, client: Client) -> None:
    """And nothing is added."""
    client.post(asking(REQUEST_MEMBERS, [user("hi")]))
    assert [name for name in bench.upstream.last.json if name in REQUEST_MEMBERS] == list(REQUEST_MEMBERS)
    assert set(bench.upstream.last.json) == {"model", "messages", *REQUEST_MEMBERS}


def test_a_response_format_counts_as_input(client: Client) -> None:
    """The provider writes its schema into the prompt."""
    plain = client.post({"model": "small", "messages": [user("hi")]})
    formatted = client.post({"model": "small", "messages": [user("hi")], "response_format": SCHEMA})
    tokens = [int(got.headers["x-tidemark-tokens-before"]) for got in (plain, formatted)]
    assert tokens[1] > tokens[0] + 10


@pytest.mark.parametrize("part", [IMAGE, SOUND, FILE], ids=["image", "audio", "file"])
def test_parts_that_are_no_text_keep_their_bytes_and_their_conversation(
    bench: Bench, client: Client, part: dict[str, Any]
) -> None:
    """Also in a request that is compacted around them."""
    shown: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, part]}]
    first = client.chat(shown)
    assert bench.upstream.last.messages == shown
    shown += [assistant("Hello there."), user("Sure?")]
    assert client.chat(shown).headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]
    newest = {"role": "user", "content": [part, {"type": "text", "text": "And this?"}]}
    got = client.chat([*history(20), newest])
    assert got.headers["x-tidemark-action"] == "compacted"
    assert bench.upstream.last.messages[-1] == newest


def test_each_choice_comes_whole_and_the_first_is_the_history(bench: Bench, client: Client) -> None:
    """``n`` above 1; the upstream may list them in any order."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "logprobs": LOGPROBS,
            "finish_reason": "stop",
        }
        for index, text in ((2, "Third."), (0, "First."), (1, "Second."))
    ]
    body = json.dumps({"id": "c", "choices": choices, "service_tier": "flex", "x": {"y": 1.50}}, indent=2).encode()
    assert answered(bench, client, body, stream=False, n=3) == assistant("First.")


def test_choices_that_come_interleaved_are_not_mixed(bench: Bench, client: Client) -> None:
    """Pieces of three choices in turn, the first one's in several chunks and its end before the others'."""
    data = events(
        *(choice(index, {"role": "assistant", "content": ""}) for index in (1, 0, 2)),
        choice(1, {"content": "Sec"}),
        choice(0, {"content": "Fi"}),
        {"choices": [choice(2, {"content": "Third."})["choices"][0], choice(0, {"content": "rst."})["choices"][0]]},
        choice(0, {}, "stop"),
        choice(1, {"content": "ond."}, "length"),
        choice(2, {}, "stop"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10}},
    )
    assert answered(bench, client, data, stream=True, n=3, stream_options={"include_usage": True}) == assistant(
        "First."
    )


def test_a_choice_that_does_not_end_is_an_early_end(bench: Bench, client: Client) -> None:
    """The client hears of it, though the first choice is whole."""
    data = events(choice(0, {"content": "First."}, "stop"), choice(1, {"content": "Sec"})).replace(
        b"data: [DONE]\n\n", b""
    )
    bench.upstream.script = lambda _: Answer([data], headers=list(SSE_HEADERS))
    got = client.post({"model": "small", "messages": [user("hi")], "stream": True, "n": 2})
    assert got.content.startswith(data)
    assert b"upstream_incomplete" in got.content


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_travel_and_are_no_part_of_the_history(bench: Bench, client: Client, *, stream: bool) -> None:
    """They stand beside the message."""
    if stream:
        data = events(
            choice(0, {"content": "Fine"}, logprobs=LOGPROBS), choice(0, {"content": "."}, "stop", logprobs=None)
        )
    else:
        said = {"index": 0, "message": assistant("Fine."), "logprobs": LOGPROBS, "finish_reason": "stop"}
        data = json.dumps({"choices": [said]}).encode()
    assert answered(bench, client, data, stream=stream, logprobs=True) == assistant("Fine.")


VENDORS: dict[str, dict[str, Any]] = {
    "DeepSeek, vLLM": {"reasoning_content": "The tide is high."},
    "OpenRouter": {
        "reasoning": "The tide is high.",
        "reasoning_details": [{"type": "reasoning.text", "text": "The tide is high.", "signature": "c2ln", "index": 0}],
    },
    "LiteLLM": {
        "reasoning_content": "The tide is high.",
        "thinking_blocks": [{"type": "thinking", "thinking": "The tide is high.", "signature": "c2ln"}],
    },
    "unknown": {"x_vendor": {"deep": [1.50, None]}, "x_flag": True},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("vendor", VENDORS)
def test_reasoning_of_other_vendors_travels(bench: Bench, client: Client, vendor: str, *, stream: bool) -> None:
    """The client gets it; strict servers refuse it in a request, so a stored history goes out without it."""
    members = VENDORS[vendor]
    if stream:
        data = events(
            choice(0, {"role": "assistant", **members}), choice(0, {"content": "Fine."}), choice(0, {}, "stop")
        )
    else:
        said = {"index": 0, "message": {**assistant("Fine."), **members}, "finish_reason": "stop"}
        data = json.dumps({"choices": [said], "x_vendor": 1}).encode()
    assert answered(bench, client, data, stream=stream) == assistant("Fine.")


@pytest.mark.parametrize("vendor", VENDORS)
def test_reasoning_that_a_client_sends_back_goes_on_as_it_came(bench: Bench, client: Client, vendor: str) -> None:
    """Some providers want it beside the calls that it led to; with and without it, it is one conversation."""
    first = client.chat([user("hi")])
    echo = {**assistant("Hello there."), **VENDORS[vendor]}
    plain, sure = assistant("Hello there."), user("Sure?")
    for said in ([user("hi"), echo, sure], [user("hi"), plain, sure, plain, user("Really?")]):
        got = client.chat(said)
        assert got.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]
        assert bench.upstream.last.messages == said


def test_streamed_arguments_of_tools_are_joined_by_their_calls(bench: Bench, client: Client) -> None:
    """Two calls in turns, in pieces that end anywhere, of the first choice; the second choice has its own."""

    def piece(index: int, arguments: str, **call: Any) -> dict[str, Any]:
        name = {"name": call.pop("name")} if "name" in call else {}
        return {"tool_calls": [{"index": index, **call, "function": {**name, "arguments": arguments}}]}

    data = events(
        choice(0, {"role": "assistant", "content": None, **piece(0, "", id="a", type="function", name="tide")}),
        choice(1, piece(0, '{"other":', id="x", type="function", name="other")),
        choice(0, piece(0, '{"at":"')),
        choice(0, piece(1, '{"q":', id="b", type="function", name="find")),
        choice(1, piece(0, "1}"), "tool_calls"),
        choice(0, piece(0, 'caf\u00e9 \\"7\\""}')),
        choice(0, piece(1, "1.50}")),
        choice(0, {}, "tool_calls"),
    )
    bench.upstream.script = lambda _: Answer([data], headers=list(SSE_HEADERS))
    got = client.post({"model": "small", "messages": [user("hi")], "stream": True, "n": 2, "tools": [TOOL]}, **STORED)
    assert got.content == data
    bench.upstream.script = says("Yes.")
    results = [{"role": "tool", "tool_call_id": one, "content": "7"} for one in "ab"]
    client.post({"model": "small", "messages": results, "tools": [TOOL]}, **STORED)
    calls = bench.upstream.last.messages[1]["tool_calls"]
    assert [(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"])) for one in calls] == [
        ("a", "tide", {"at": 'caf\u00e9 "7"'}),
        ("b", "find", {"q": 1.5}),
    ]
    assert bench.upstream.last.messages[2:] == results


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_in_sound_is_named_by_its_id_afterwards(bench: Bench, client: Client, *, stream: bool) -> None:
    """Its data are large and come once; the reference wants the id alone."""
    if stream:
        data = events(
            choice(0, {"role": "assistant", "audio": {"id": "audio_1", "transcript": "Fi"}}),
            choice(0, {"audio": {"transcript": "ne."}}),
            choice(0, {"audio": {"data": "UklG"}}),
            choice(0, {"audio": {"data": "Rg==", "expires_at": 9}}, "stop"),
        )
    else:
        sound = {"id": "audio_1", "data": "UklGRg==", "transcript": "Fine.", "expires_at": 9}
        message = {"role": "assistant", "content": None, "refusal": None, "audio": sound}
        data = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    answer = answered(bench, client, data, stream=stream, modalities=["text", "audio"])
    assert answer["audio"] == {"id": "audio_1"}
    assert answer.get("content") is None
