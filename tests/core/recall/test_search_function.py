"""The search function's rules: what a call asks for, and the text that answers it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import message
from tidemark.core.recall.passage import handle_of
from tidemark.core.recall.quotation import RecalledExchange
from tidemark.core.recall.search_function import RESULT_CLOSING, RESULT_OPENING, SearchCall, read_call, search_result


@given(st.text())
def test_any_arguments_give_a_query_or_none(arguments: str) -> None:
    """A model may write anything; what is no object with a text asks for nothing."""
    assert isinstance(read_call(arguments), SearchCall)


@given(st.text())
def test_the_query_is_the_models_own_text(query: str) -> None:
    """Without the space around it."""
    assert read_call(json.dumps({"query": query, "more": 1, "handle": 7})) == SearchCall(query.strip())


@given(st.text())
def test_no_message_closes_the_frame_of_a_result(text: str) -> None:
    """A quoted message opens and closes its frame once, whatever stands in it."""
    quoted = message(role="user", content=text)
    result = search_result([quoted], [RecalledExchange((0,), 1)])
    assert result.startswith(f"{RESULT_OPENING}\n<<<user {handle_of(quoted)}\n")
    assert result.endswith(f"\n>>>\n{RESULT_CLOSING}")
    assert result.count("<<<") == result.count(">>>") == 1


@pytest.mark.parametrize(("text", "size"), [("a\nb\nc", "3 lines"), ("\u00e4" * 9, "18 bytes")])
def test_an_excerpt_says_how_large_its_message_is(text: str, size: str) -> None:
    """Behind the handle, so that the model knows which ranges there are; a message that is quoted whole has none."""
    long = message(role="user", content=text)
    excerpt = search_result([long], [RecalledExchange((0,), 1, "b")])
    assert f"<<<user {handle_of(long)} ({size})\nb\n>>>" in excerpt
    assert f"<<<user {handle_of(long)}\n" in search_result([long], [RecalledExchange((0,), 1)])
