"""What is left of a stored history with gaps: all that can be read and stands by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core.histories import message
from tidemark.core.conversation.gaps import places_without_gaps
from tidemark.core.conversation.messages import Message

USER = {"role": "user", "content": "u"}
SAID = {"role": "assistant", "content": "a"}
CALL = {"role": "assistant", "tool_calls": [{"id": "1"}]}
CALLS = {"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]}
OLD_CALL = {"role": "assistant", "function_call": {"name": "f"}}
RESULT = {"role": "tool", "content": "r", "tool_call_id": "1"}
OLD_RESULT = {"role": "function", "content": "r", "name": "f"}
GAP: dict[str, Any] = {}


def read(said: Sequence[dict[str, Any]]) -> list[Message | None]:
    """Messages as they are read back."""
    return [message(**one) if one else None for one in said]


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ([USER, SAID, USER, SAID], [1, 2, 3, 4]),
        ([GAP, SAID, USER], [2, 3]),
        ([USER, GAP, USER], [1, 3]),
        ([USER, SAID, GAP], [1, 2]),
        ([GAP], []),
        ([USER, CALL, GAP, USER], [1, 4]),
        ([USER, GAP, RESULT, SAID], [1, 4]),
        ([USER, CALL, RESULT, GAP, USER], [1, 2, 3, 5]),
        ([USER, CALLS, RESULT, GAP, SAID], [1, 5]),
        ([USER, CALLS, GAP, RESULT, SAID], [1, 5]),
        ([USER, CALL, RESULT, GAP, RESULT, SAID], [1, 2, 3, 6]),
        ([USER, OLD_CALL, GAP, SAID], [1, 4]),
        ([USER, GAP, OLD_RESULT, SAID], [1, 4]),
        ([GAP, RESULT, USER], [3]),
    ],
)
def test_what_has_lost_its_counterpart_is_left_out_with_the_gap(said: list[dict[str, Any]], left: list[int]) -> None:
    """A call and its results never part; what stands by itself stays."""
    assert [place + 1 for place in places_without_gaps(read(said))] == left
