"""A record of a tool's JSON result, such as a flight or a passenger, stands whole in a line of a summary or in none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.records import RECORD_CHARS, records
from tidemark.summarizers.sentences import SENTENCE_CHARS

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]
NAMES = st.text('abcXYZ_é9,:{}[]"\\', min_size=1, max_size=12)
SCALARS = NAMES | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text("word. ", min_size=200, max_size=700),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(NAMES, inner, max_size=8),
    max_leaves=60,
)
DOCUMENTS = (st.lists(VALUES, max_size=8) | st.dictionaries(NAMES, VALUES, max_size=8)).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)


def objects_in(value: object) -> Iterator[dict[str, object]]:
    """All objects of a JSON value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(inner)


@given(DOCUMENTS)
def test_each_object_that_fits_a_line_stands_whole_in_one(document: str) -> None:
    """Whatever stands around it, and whatever signs its texts have."""
    lines = records(document)
    assert lines is not None
    for value in objects_in(json.loads(document)):
        text = " ".join(json.dumps(value, ensure_ascii=False).split())
        if len(text) <= RECORD_CHARS:
            assert any(text in line for line in lines), (text, lines)


@given(DOCUMENTS)
def test_no_line_is_longer_than_a_record(document: str) -> None:
    """A long text is cut into its sentences, and a key may stand before a line."""
    assert all(len(line) <= RECORD_CHARS + SENTENCE_CHARS for line in records(document) or [])


@pytest.mark.parametrize("text", ["", "plain", "{", '{"a": ', "[1, 2", '"text"', "7", "{'a': 1}", "[" * 5000])
def test_what_is_no_json_object_or_list_has_no_records(text: str) -> None:
    """It is read like any output."""
    assert records(text) is None


def test_members_of_a_large_object_are_lines_and_numbers_stay_as_they_stood() -> None:
    """Small members share a line, an item of a long list follows its key, and nothing is rounded."""
    flights = [{"flight": f"HAT{place}", "seats": {"economy": place}, "text": "x" * 200} for place in range(3)]
    text = json.dumps({"price": 0, "status": "open", "flights": flights}).replace('"price": 0', '"price": 1.50')
    assert records(text) == ['"price": 1.50, "status": "open"', *(f'"flights": {json.dumps(each)}' for each in flights)]


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ({"flight_number": "HA7"}, '"flight_number": "HA7", '),
        ({"orderId": 48213}, '"orderId": 48213, '),
        ({"ready": True, "code": "BRK-2"}, '"code": "BRK-2", '),
        ({"status": "open"}, '"HA-7": '),
        ({"api_key": "secret"}, '"HA-7": '),
        ({"paid": "cash"}, '"HA-7": '),
        ({"code": 200}, '"HA-7": '),
    ],
)
def test_each_line_of_a_long_record_says_whose_it_is(name: dict[str, object], start: str) -> None:
    """By the member that identifies it, or by a key with a number; sentences of a text stay as they are."""
    record = {**name, "seats": {"row": "x" * 300}, "crew": {"names": "y" * 300}, "text": "The gate is late. " * 40}
    lines = [line for line in records(json.dumps({"HA-7": record})) or [] if line != "The gate is late."]
    assert len(lines) >= 3
    assert all(start.rstrip(", ") in line for line in lines)
    assert [line for line in records(json.dumps({"list": record})) or [] if "HA-7" in line] == []


@given(DOCUMENTS)
def test_what_identifies_a_record_takes_nothing_from_it(document: str) -> None:
    """All texts stand in the lines as they stood."""
    lines = "\n".join(records(document) or [])
    for value in objects_in(json.loads(document)):
        for key, text in value.items():
            if isinstance(text, str) and len(text) < 12:
                assert f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(text, ensure_ascii=False)}" in lines


@pytest.mark.anyio
@pytest.mark.parametrize("bound", [60, 90, 140])
async def test_a_summary_pairs_no_value_with_half_of_its_record(counter: TokenCounter, talk: Talk, bound: int) -> None:
    """Who reads an id reads what it belongs to."""
    people = [{"first_name": f"Ana{place}", "note": "seat " * 20, "card": f"gift_card_{place}"} for place in range(9)]
    result = {"role": "tool", "tool_call_id": "c", "content": json.dumps({"saved_passengers": people})}
    messages = talk("Who flies?", result, "Pay with gift_card_7, please.", "Done.", "Thanks, go on with it.")
    text = (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, None, bound, MODEL))).text
    for person in people:
        assert (person["card"] in text.split("Pay with")[0]) == (f'"{person["first_name"]}"' in text)
