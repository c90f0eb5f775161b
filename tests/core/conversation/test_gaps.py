"""What is left of a stored history with gaps: all that can be read and stands by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.core.conversation.gaps import without_gaps
from proxy.core.conversation.records import StoredMessage

USER = {"role": "user", "content": "u"}
SAID = {"role": "assistant", "content": "a"}
CALL = {"role": "assistant", "tool_calls": [{"id": "1"}]}
CALLS = {"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]}
OLD_CALL = {"role": "assistant", "function_call": {"name": "f"}}
RESULT = {"role": "tool", "content": "r"}
OLD_RESULT = {"role": "function", "content": "r"}
GAP: dict[str, Any] = {}


def stored(said: Sequence[dict[str, Any]]) -> list[StoredMessage]:
    """Messages as they are read back."""
    return [
        StoredMessage(place, "", json.dumps(one).encode() if one else b"", 1, 0.0, unreadable="" if one else "broken")
        for place, one in enumerate(said, 1)
    ]


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
    assert [one.position for one in without_gaps(stored(said))] == left
