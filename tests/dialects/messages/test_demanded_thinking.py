"""Manual thinking is demanded back within a tool loop, from the loop's first answer on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.dialects.messages.anthropic_talk import assistant, calls, result, text, thinking, user
from tidemark.dialects.messages.dialect import MessagesThinking

MANUAL = {"thinking": b'{"type":"enabled","budget_tokens":1024}'}
STEP = (assistant(thinking("Hm."), calls("read", "a")), user(result("a", "A")))
NOTE = {"role": "system", "content": "Be quick."}
FIRST = (user("Go."), assistant("Fine."), user("Read."))


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        (FIRST, 3),
        ([*FIRST, *STEP], 3),
        ([*FIRST, *STEP, *STEP], 3),
        ([*FIRST, *STEP, NOTE, *STEP, NOTE], 3),
        ([*FIRST, NOTE, *STEP], 4),
        ([*FIRST, *STEP, assistant("Done."), user("And?")], 7),
        ([*FIRST, *STEP, assistant(text("So"))], 6),
    ],
)
def test_the_place_is_that_of_the_loops_first_answer(messages: Any, place: int) -> None:
    """System messages are no part of it; the end where the request is no loop's, or thinks adaptively."""
    elements = [json.dumps(message).encode() for message in messages]
    assert MessagesThinking().demanded(MANUAL, elements) == place
    assert MessagesThinking().demanded({"thinking": b'{"type":"adaptive"}'}, elements) == len(elements)
