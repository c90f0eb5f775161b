"""The search function's rules: what a call asks for, and the text that answers it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import message
from tidemark.core.recall.quotation import RecalledExchange
from tidemark.core.recall.search_function import RESULT_CLOSING, RESULT_OPENING, query_of, search_result


@given(st.text())
def test_any_arguments_give_a_query_or_none(arguments: str) -> None:
    """A model may write anything; what is no object with a text has no query."""
    assert isinstance(query_of(arguments), str)


@given(st.text())
def test_the_query_is_the_models_own_text(query: str) -> None:
    """Without the space around it."""
    assert query_of(json.dumps({"query": query, "more": 1})) == query.strip()


@given(st.text())
def test_no_message_closes_the_frame_of_a_result(text: str) -> None:
    """A quoted message opens and closes its frame once, whatever stands in it."""
    result = search_result([message(role="user", text=text)], [RecalledExchange((0,), 1)])
    assert result.startswith(f"{RESULT_OPENING}\n<<<user\n")
    assert result.endswith(f"\n>>>\n{RESULT_CLOSING}")
    assert result.count("<<<") == result.count(">>>") == 1
