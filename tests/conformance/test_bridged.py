"""Over a bridge a client gets the same turn in its own dialect: ``a bridge`` in differences.py."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conformance.cases import GENERATIONS, Case
from tests.conformance.conftest import Ways
from tests.conformance.sdk_types import check_answer, events_of
from tests.support.answers import Json

BRIDGED = ("text", "calls", "results", "refused", "rate limit", "away")
CASES = [
    case for case in GENERATIONS if case.dialect != "chat" and case.name.partition(" ")[2].partition(" ")[2] in BRIDGED
]
each = pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])


@dataclass
class Meaning:
    """What an answer means, whatever its ids and its pieces are."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    end: str = ""
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
    end = None
    for event in told:
        match event["type"]:
            case "content_block_start":
                blocks[event["index"]] = event["content_block"]
                texts[event["index"]] = ""
            case "content_block_delta":
                delta = event["delta"]
                texts[event["index"]] += delta.get("text") or delta.get("partial_json") or ""
            case "message_delta":
                end = event["delta"]["stop_reason"]
    for index, block in blocks.items():
        if block["type"] == "text":
            block["text"] = texts[index]
        elif block["type"] == "tool_use":
            block["input"] = json.loads(texts[index])
    return {"content": list(blocks.values()), "stop_reason": end}


def _of_whole(dialect: str, body: Json) -> Meaning:
    """The meaning of a body that is not streamed."""
    if dialect == "messages":
        blocks = body["content"]
        calls = [(block["name"], json.dumps(block["input"])) for block in blocks if block["type"] == "tool_use"]
        return Meaning("".join(block.get("text", "") for block in blocks), calls, body["stop_reason"])
    items = body["output"]
    texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
    calls = [(item["name"], item["arguments"]) for item in items if item["type"] == "function_call"]
    return Meaning("".join(texts), calls, body["status"])


@each
def test_a_bridge_keeps_status_and_meaning(case: Case, ways: Ways) -> None:
    """Text, calls with their arguments, and how it ended; an error keeps its status, its message and its headers."""
    straight, _ = ways.straight.ask(case)
    bridged, received = ways.bridged.ask(case)
    assert received.dialect == "chat"
    assert bridged.status == straight.status
    check_answer(case.dialect, bridged.body, streams=case.streams, failed=bridged.status != 200)
    if straight.status != 200:
        assert json.loads(bridged.body)["error"]["message"] == json.loads(straight.body)["error"]["message"]
        assert bridged.headers.get("retry-after") == straight.headers.get("retry-after")
        return
    told = meaning(case.dialect, straight.body, streams=case.streams)
    assert meaning(case.dialect, bridged.body, streams=case.streams) == told
