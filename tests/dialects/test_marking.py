"""Cache marks in the bodies that dialects write: on the summary and the system text, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.cache_marks import CacheMarks
from tidemark.core.conversation.messages import system_message
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.marking import with_mark
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect

MEMBER = b'"cache_control":{"type":"ephemeral"}'
MARK = {"type": "ephemeral"}
SUMMARY = "Summary of earlier turns (3 messages)."
BOTH, ALONE = CacheMarks(MEMBER, on_system=True), CacheMarks(MEMBER, on_system=False)
texts = st.text(max_size=20)
parts = st.fixed_dictionaries({"type": st.sampled_from(["text", "input_text", "image"]), "text": texts})


@given(texts | st.lists(parts, max_size=4) | st.none(), st.booleans())
def test_a_mark_is_all_that_changes(content: Any, ascii_only: bool) -> None:  # noqa: FBT001 - drawn
    """It stands on the last part, which must be a text that says something; a text becomes such a part."""
    raw = json.dumps(content, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    marked = json.loads(with_mark(raw, MEMBER, "text"))
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not blocks or blocks[-1]["type"] == "image" or not blocks[-1]["text"].strip():
        assert marked == content
    else:
        assert marked == [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]


def body_of(dialect: Dialect, body: dict[str, Any], marks: CacheMarks | None) -> Any:
    """The body of a request whose messages before the newest one became a summary."""

    async def parse() -> ModelRequest:
        return await dialect.parse(json.dumps(body).encode())

    request = asyncio.run(parse())
    head = [message for message in request.messages if message.is_system]
    messages = [*head, system_message(SUMMARY), request.messages[-1]]
    return json.loads(dialect.body_with(replace(request, marks=marks), messages, model="m"))


def marked_places(value: Any) -> list[str]:
    """The texts of all marked blocks, in order."""
    if isinstance(value, list):
        return [place for each in value for place in marked_places(each)]
    if not isinstance(value, dict):
        return []
    own = [value.get("text", "?")] if value.get("cache_control") == MARK else []
    return own + [place for each in value.values() for place in marked_places(each)]


TALK = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Ho."}, {"role": "user", "content": "Go."}]
RULES = {"role": "system", "content": "Be brief."}
PARTS = {"role": "developer", "content": [{"type": "input_text", "text": "A."}, {"type": "input_text", "text": "B."}]}
CASES: list[tuple[Dialect, dict[str, Any], str]] = [
    (ChatDialect(), {"messages": [RULES, *TALK]}, "Be brief."),
    (ResponsesDialect(), {"input": [RULES, PARTS, *TALK]}, "B."),
    (MessagesDialect(), {"max_tokens": 9, "system": "Be brief.", "messages": TALK}, "Be brief."),
    (
        MessagesDialect(),
        {"max_tokens": 9, "system": [{"type": "text", "text": "A."}, {"type": "text", "text": "B."}], "messages": TALK},
        "B.",
    ),
]


@pytest.mark.parametrize(("dialect", "body", "last"), CASES)
def test_the_last_system_text_and_the_summary_are_marked(dialect: Dialect, body: dict[str, Any], last: str) -> None:
    """Two marks, or one if the system text is too short; without them nothing is."""
    body = {"model": "m", **body}
    assert marked_places(body_of(dialect, body, BOTH)) == [last, SUMMARY]
    assert marked_places(body_of(dialect, body, ALONE)) == [SUMMARY]
    assert marked_places(body_of(dialect, body, None)) == []


@pytest.mark.parametrize("dialect", [ChatDialect(), ResponsesDialect(), MessagesDialect()])
def test_without_system_text_the_summary_alone_is_marked(dialect: Dialect) -> None:
    """Nothing stands before it but tools."""
    body = {"model": "m", "max_tokens": 9, dialect.messages_member: TALK}
    assert marked_places(body_of(dialect, body, BOTH)) == [SUMMARY]
