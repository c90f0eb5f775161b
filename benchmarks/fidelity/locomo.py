"""Reads LoCoMo's file, long talks of two friends with questions about them, where the user has it.

The data is under CC BY-NC and no part of Tidemark (https://github.com/snap-research/locomo, ``data/locomo10.json``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from benchmarks.fidelity.cases import Case, Conversation, Fact
from benchmarks.fidelity.survival import surviving
from tidemark.core.errors import ConfigError

_CATEGORIES = {1: "several turns", 2: "time", 3: "open", 4: "one turn"}
"""The kinds of questions; the fifth has no answer in the talk."""


def locomo_cases(text: bytes) -> list[Case]:
    """Return a case for each talk, with the answers that stand in a single turn of it.

    :raises ConfigError: the file is no LoCoMo
    """
    try:
        samples = json.loads(text)
        cases = [_case(sample) for sample in samples]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = (
            "The file is no LoCoMo: a JSON array of samples with 'conversation' and 'qa' is needed (locomo10.json)."
        )
        raise ConfigError(message) from error
    if not cases:
        raise ConfigError("The file is no LoCoMo: it has no sample.")
    return cases


def _case(sample: Mapping[str, Any]) -> Case:
    messages = list(_messages(sample["conversation"]))
    facts = [
        Fact(_CATEGORIES[question["category"]], (str(question["answer"]),), str(question.get("question", "")))
        for question in sample["qa"]
        if question["category"] in _CATEGORIES and "answer" in question
    ]
    case = Case("LoCoMo", messages, facts, loose=True)
    standing = surviving(case, facts, [message["content"] for message in messages])
    return Case("LoCoMo", messages, standing, loose=True)


def _messages(talk: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the turns of all sessions; the first speaker is the user."""
    messages: Conversation = []
    for number in count(1):
        turns = talk.get(f"session_{number}")
        if turns is None and f"session_{number}_date_time" not in talk:
            break
        for turn in turns or ():
            role = "user" if turn["speaker"] == talk["speaker_a"] else "assistant"
            messages.append({"role": role, "content": str(turn["text"])})
    yield from messages
