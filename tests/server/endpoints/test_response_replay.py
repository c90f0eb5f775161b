"""A stored response as a stream of events: valid by the official SDK's own models, and whole when put together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.dialects.responses.events import CALL, CUSTOM, events_of, response, text_item
from tidemark.dialects.responses.reply import stream_fold
from tidemark.features.responses.response_replay import response_stream

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
MCP = {"type": "mcp_call", "id": "mcp_1", "name": "look", "server_label": "sea", "arguments": '{"at":1}'}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "tide"},
}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "The tide."}],
    "content": [{"type": "reasoning_text", "text": "First the tide."}],
}
REFUSED = {
    "type": "message",
    "role": "assistant",
    "id": "msg_2",
    "status": "completed",
    "content": [{"type": "refusal", "refusal": "No."}],
}


def stored(output: list[dict[str, Any]], status: str = "completed", **members: Any) -> dict[str, bytes]:
    """The raw members of a stored response."""
    return {name: json.dumps(value).encode() for name, value in response(output, status, **members).items()}


def replayed(members: dict[str, bytes], after: int | None = None) -> list[dict[str, Any]]:
    """The data of each event; its name is its type."""
    events: list[dict[str, Any]] = []
    for block in response_stream(members, after).decode().strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate_python(event, strict=True)
        events.append(event)
    return events


@pytest.mark.parametrize("item", [text_item("Hi."), CALL])
def test_the_events_are_those_of_a_live_stream(item: dict[str, Any]) -> None:
    """In OpenAI's order, with one delta for the whole text."""
    live = [event["type"] for event in events_of([item])]
    deltas = [kind for kind in live if kind.endswith(".delta")]
    expected = [kind for place, kind in enumerate(live) if kind not in deltas or live[place - 1] != kind]
    events = replayed(stored([item]))
    assert [event["type"] for event in events] == expected
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize("item", [text_item("Hör zu. 🌊"), CALL, CUSTOM, MCP, SEARCH, THOUGHT, REFUSED])
def test_an_item_begins_empty_and_ends_whole(item: dict[str, Any]) -> None:
    """Its deltas bring every text, and the last event repeats the response."""
    events = replayed(stored([item]))
    assert events[-1]["response"]["output"] == [item]
    assert events[0]["response"]["output"] == []
    assert (events[0]["response"]["status"], events[0]["response"]["usage"]) == ("in_progress", None)
    added = next(event for event in events if event["type"] == "response.output_item.added")
    assert not any(added["item"].get(name) for name in ("content", "summary", "arguments", "input"))
    texts = [item.get("arguments"), item.get("input")]
    texts += [part.get("text", part.get("refusal")) for name in ("summary", "content") for part in item.get(name, ())]
    deltas = [event["delta"] for event in events if event["type"].endswith(".delta")]
    assert deltas == [text for text in texts if text is not None]


def test_an_annotation_comes_as_an_event_of_its_own() -> None:
    """Between the text and its end."""
    item = text_item("See the harbour.")
    citation = {"type": "url_citation", "url": "http://h", "title": "H", "start_index": 0, "end_index": 3}
    item["content"][0]["annotations"] = [citation]
    events = replayed(stored([item]))
    added = next(event for event in events if event["type"] == "response.output_text.annotation.added")
    assert (added["annotation"], added["annotation_index"]) == (citation, 0)
    part = next(event for event in events if event["type"] == "response.content_part.added")["part"]
    assert part["annotations"] == []


def test_the_stream_is_read_as_the_reply_that_was_stored() -> None:
    """By the reader of an upstream's own streams."""
    fold = stream_fold()
    fold.feed(response_stream(stored([text_item("Hi."), CALL])))
    reply = fold.reply()
    assert reply.complete
    assert reply.message is not None
    assert (reply.message.text, reply.message.calls[0].name) == ("Hi.", "look")


def test_a_response_that_was_cut_at_its_longest_length_ends_as_incomplete() -> None:
    """Not as completed; the reason comes with its end."""
    reason = {"reason": "max_output_tokens"}
    events = replayed(stored([text_item("Hi.")], "incomplete", incomplete_details=reason))
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == reason
    assert events[0]["response"]["incomplete_details"] is None


@pytest.mark.parametrize("after", [0, 3, 7])
def test_the_events_after_a_number_follow(after: int) -> None:
    """With the numbers that they have in the whole stream."""
    members = stored([text_item("Hi.")])
    assert replayed(members, after) == replayed(members)[after + 1 :]


@pytest.mark.parametrize("after", [8, 57, 10**15 - 1])
def test_a_client_that_has_more_events_gets_the_last_one(after: int) -> None:
    """The live stream had more deltas; without an end the client would never have the rest of its text."""
    (event,) = replayed(stored([text_item("Hi.")]), after)
    assert (event["type"], event["sequence_number"]) == ("response.completed", after + 1)
