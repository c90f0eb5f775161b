"""How a stream opens: an error of its first event is read, whoever wrote it and however the network cuts it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.dialects.openings import opening_error

REFUSALS = {
    "LM Studio": b'event: error\ndata: {"error":{"message":"No."}}\n\n',
    "a text": b'data: {"error": "No."}\n\n',
    "Anthropic": b'event: error\ndata: {"type": "error", "error": {"type": "x", "message": "No."}}\n\n',
    "a message alone": b'event: error\r\ndata: {"message": "No."}\r\n\r\n',
    "behind an opening": b'event: message_start\ndata: {"type": "message_start"}\n\n'
    b'event: error\ndata: {"type": "error", "error": {"message": "No."}}\n\n',
    "behind comments": b': one moment\n\n: still\n\ndata: {"error": {"message": "No."}}\n\ndata: [DONE]\n\n',
}
BEGINNINGS = {
    "a chunk": b'data: {"choices": [{"delta": {"content": "No."}}]}\n\n',
    "a chunk without an error": b'data: {"choices": [], "error": null}\n\n',
    "an end": b"data: [DONE]\n\n",
    "no object": b'data: ["error"]\n\n',
    "no JSON": b"data: error\n\n",
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_in_a_stream_is_read_as_the_body_of_one_without(refusal: str) -> None:
    """So the same rules read both."""
    error = opening_error(REFUSALS[refusal])
    assert error is not None
    assert json.loads(error)["error"]["message"] == "No."


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_any_other_event_begins_a_reply(beginning: str) -> None:
    """Also one that cannot be read."""
    assert opening_error(BEGINNINGS[beginning] + REFUSALS["LM Studio"]) == b""


@pytest.mark.parametrize("refusal", REFUSALS)
def test_nothing_is_known_before_the_first_event_with_data_has_ended(refusal: str) -> None:
    """A cut within it tells nothing."""
    whole = REFUSALS[refusal].split(b"data: [DONE]")[0]
    assert {opening_error(whole[:cut]) for cut in range(len(whole) - 1)} == {None}


def test_a_body_that_is_no_stream_is_a_refusal_if_it_has_an_error_and_no_reply() -> None:
    """OpenRouter's, with status 200; nothing is known before its end, and a reply that has begun never waits for it."""
    body = b'\n    \n{"error": {"message": "No.", "code": 400}, "user_id": "u"}'
    assert {opening_error(body[:cut]) for cut in range(len(body))} == {None}
    error = opening_error(body)
    assert error is not None
    assert json.loads(error) == {"error": {"message": "No.", "code": 400}}
    for reply in (b'{"id": "c", "choices": [', b'{"content": [], "error": {"message": "No."}}', b'{"error": null}'):
        assert opening_error(reply) == b""


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_passed_over(data: bytes) -> None:
    """What a server sends is no fault of the client's."""
    error = opening_error(data)
    assert not error or "error" in json.loads(error)
