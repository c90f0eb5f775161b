"""Over a bridge a client gets the same turn in its own dialect: ``a bridge`` in differences.py.

So it does with ``transport.lane: litellm``, which sends the bridge's request through litellm.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conformance.cases import GENERATIONS, LIMITS, Case
from tests.conformance.conftest import Way, Ways
from tests.conformance.differences import is_framed
from tests.conformance.litellm_differences import OWN_WARNING
from tests.conformance.sdk_types import check_answer, events_of
from tests.support.answers import Json

pytestmark = pytest.mark.filterwarnings(OWN_WARNING)
LEFT_OUT = ("failure", "odd bytes", "packed", "length", "controls", "chunks", "repeated headers")
"""Cases about bytes, of which a bridge keeps none, and one that ends after a number of events."""
CASES = [case for case in GENERATIONS if case.dialect != "chat" and not case.name.endswith(LEFT_OUT)]
CHAT = {case.name.removeprefix("chat "): case.body for case in GENERATIONS if case.dialect == "chat"}
each = pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])


@pytest.fixture(params=["chat alone", "litellm"])
def bridge(request: pytest.FixtureRequest, ways: Ways) -> Way:
    """Each way that has a bridge."""
    return ways.litellm if request.param == "litellm" else ways.bridged


@dataclass
class Meaning:
    """What an answer means, whatever its ids and its pieces are."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    end: str = ""
    tokens: tuple[int, int, int] = (0, 0, 0)
    """Of the input, of its part that was cached, and of the output."""
    kinds: dict[int, list[str]] = field(default_factory=dict)
    """The types of the events of each item or block, each run of equal ones once; -1 is the whole answer's."""


def meaning(dialect: str, body: bytes, *, streams: bool) -> Meaning:
    """Read an answer."""
    if not streams:
        return _of_whole(dialect, json.loads(body))
    told = events_of(body)
    runs: dict[int, list[str]] = {}
    for event in told:
        place: Any = event.get("output_index", event.get("index", -1))
        run = runs.setdefault(place, [])
        if run[-1:] != [event["type"]]:
            run.append(event["type"])
    if dialect == "responses":
        whole = _of_whole(dialect, told[-1]["response"])
    else:
        whole = _of_whole(dialect, _message_of(told))
    whole.kinds = runs
    return whole


def _message_of(told: list[Json]) -> Json:
    """Fold the events of a message."""
    blocks: dict[int, Json] = {}
    texts: dict[int, str] = {}
    end, usage = None, {}
    for event in told:
        match event["type"]:
            case "content_block_start":
                blocks[event["index"]] = event["content_block"]
                texts[event["index"]] = ""
            case "content_block_delta":
                delta = event["delta"]
                texts[event["index"]] += delta.get("text") or delta.get("partial_json") or ""
            case "message_start":
                usage = event["message"]["usage"]
            case "message_delta":
                end, usage = event["delta"]["stop_reason"], {**usage, **event["usage"]}
    for index, block in blocks.items():
        if block["type"] == "text":
            block["text"] = texts[index]
        elif block["type"] == "tool_use":
            block["input"] = json.loads(texts[index])
    return {"content": list(blocks.values()), "stop_reason": end, "usage": usage}


def _of_whole(dialect: str, body: Json) -> Meaning:
    """The meaning of a body that is not streamed."""
    usage = body["usage"]
    if dialect == "messages":
        blocks = body["content"]
        calls = [(block["name"], json.dumps(block["input"])) for block in blocks if block["type"] == "tool_use"]
        told = "".join(block.get("text", "") for block in blocks)
        cached = usage["cache_read_input_tokens"]
        return Meaning(told, calls, body["stop_reason"], (usage["input_tokens"], cached, usage["output_tokens"]))
    items = body["output"]
    texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
    calls = [(item["name"], item["arguments"]) for item in items if item["type"] == "function_call"]
    cached = usage["input_tokens_details"]["cached_tokens"]
    return Meaning("".join(texts), calls, body["status"], (usage["input_tokens"], cached, usage["output_tokens"]))


def told_in_chat(case: Case) -> list[Json]:
    """The messages of the same request in chat completions."""
    messages: list[Json] = json.loads(CHAT[case.name.removeprefix(f"{case.dialect} ")])["messages"]
    system = (
        [{"role": "system", "content": "Be brief."}]
        if case.name.endswith((" whole members", " streamed members"))
        else []
    )
    return system + [plain(message) for message in messages]


def plain(message: Json) -> Json:
    """A message without its ids, of which each dialect has its own kind, and with the content that a call lacks."""
    message = {"content": None, **{name: value for name, value in message.items() if name != "tool_call_id"}}
    if "tool_calls" in message:
        message["tool_calls"] = [{**call, "id": ""} for call in message["tool_calls"]]
    return message


@each
def test_a_bridge_keeps_status_and_meaning(case: Case, bridge: Way, ways: Ways) -> None:
    """Text, calls with their arguments, tokens, and how it ended; an error keeps its status and its message."""
    straight, _ = ways.straight.ask(case)
    bridged, received = bridge.ask(case)
    assert received.dialect == "chat"
    assert bridged.status == straight.status
    assert is_framed(bridged.headers, bridged.body)
    check_answer(case.dialect, bridged.body, streams=case.streams, failed=bridged.status != 200)
    if straight.status != 200:
        assert json.loads(bridged.body)["error"]["message"] == json.loads(straight.body)["error"]["message"]
        return
    told = meaning(case.dialect, straight.body, streams=case.streams)
    kept = meaning(case.dialect, bridged.body, streams=case.streams)
    if case.name == "responses streamed members":  # a thought of chat completions is no summary of one
        del told.kinds[0], kept.kinds[0]
    assert kept == told


@each
def test_a_bridge_keeps_limits_ids_and_times_to_wait(case: Case, bridge: Way, ways: Ways) -> None:
    """A client that backs off does so over a bridge, too."""
    straight, _ = ways.straight.ask(case)
    bridged, _ = bridge.ask(case)
    names = [name.replace("_", "-") for name in LIMITS] + ["x-should-retry"]
    assert [bridged.header(name) for name in names] == [straight.header(name) for name in names]
    assert bridged.header("x-request-id") == ["req_1"]


@each
def test_a_bridge_asks_what_a_client_of_chat_completions_would_ask(case: Case, bridge: Way) -> None:
    """The same messages, calls, results and pictures, and the same tools."""
    _, received = bridge.ask(case)
    asked = json.loads(CHAT[case.name.removeprefix(f"{case.dialect} ")])
    assert [plain(message) for message in received.messages] == told_in_chat(case)
    tools = [tool["function"] for tool in received.json.get("tools", ())]
    assert [(tool["name"], tool["parameters"]) for tool in tools] == [
        (tool["function"]["name"], tool["function"]["parameters"]) for tool in asked.get("tools", ())
    ]
    assert received.streams == case.streams
