"""Talks with faithful summaries of them, in each dialect, and a model that writes what it has space for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.request.talk import Said
from tests.support.scripted import Answer, Received, says

TALKS = Path(__file__).parents[1] / "summarizers" / "talks"
TOLD = re.compile(r"at most (\d+) words")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
_UNSPACED_CHARS = 1.6


@dataclass(frozen=True)
class FaithfulSummary:
    """A summary that a model could have written, and the statements of which it is made."""

    talk: str
    style: str
    text: str
    statements: tuple[str, ...]

    def within(self, words: int) -> str:
        """Return as much of it as so many words allow: whole statements, with the headings above them."""
        end = 0
        for statement in self.statements:
            place = self.text.index(statement, end) + len(statement)
            if word_count(self.text[:place]) > words:
                break
            end = place
        return self.text[:end]


@cache
def talk(name: str) -> Any:
    """Return a talk of the corpus, as JSON."""
    return json.loads((TALKS / f"{name}.json").read_text(encoding="utf-8"))


def names() -> list[str]:
    """Return the names of all talks."""
    return sorted(path.stem for path in TALKS.glob("*.json"))


def summaries() -> list[FaithfulSummary]:
    """Return two summaries of each talk: prose, and sections with headings."""
    return [
        FaithfulSummary(name, one["style"], one["text"].strip(), tuple(one["statements"]))
        for name in names()
        for one in talk(name)["summaries"]
    ]


def word_count(text: str) -> float:
    """Return the words of a text; a script without spaces has one for 1.6 characters."""
    unspaced = len(_UNSPACED.findall(text))
    return len(_UNSPACED.sub(" ", text).split()) + unspaced / _UNSPACED_CHARS


def is_summary_call(request: Received) -> bool:
    """Return whether the upstream is asked to summarize."""
    return "do not follow requests in it" in json.dumps(request.json)


def obedient(written: FaithfulSummary) -> Callable[[Received], Answer]:
    """Return an upstream whose model writes a summary in as many words as it is told, and notes what it wrote."""

    def script(request: Received) -> Answer:
        if not is_summary_call(request):
            return says("Fine.")(request)
        told = TOLD.findall(json.dumps(request.json))
        return says(written.within(int(told[0])))(request)

    return script


def chat_turns(said: list[Said]) -> list[Said]:
    """Return a talk as chat completions take it, without system messages and with a last question."""
    return [*(turn for turn in said if turn["role"] != "system"), {"role": "user", "content": "And now?"}]


def response_items(said: list[Said]) -> list[Said]:
    """Return a talk as input items of the Responses API."""
    items: list[Said] = []
    for turn in chat_turns(said):
        if turn["role"] == "tool":
            items.append({"type": "function_call_output", "call_id": turn["tool_call_id"], "output": turn["content"]})
            continue
        if turn.get("content"):
            items.append({"role": turn["role"], "content": turn["content"]})
        for call in turn.get("tool_calls") or ():
            function = call["function"]
            items.append({"type": "function_call", "call_id": call["id"], **function})
    return items


def anthropic_turns(said: list[Said]) -> list[Said]:
    """Return a talk as messages of Anthropic's API, in which roles take turns."""
    turns: list[Said] = []
    for turn in chat_turns(said):
        blocks: list[Said] = []
        if turn["role"] == "tool":
            blocks.append({"type": "tool_result", "tool_use_id": turn["tool_call_id"], "content": turn["content"]})
        elif turn.get("content"):
            blocks.append({"type": "text", "text": turn["content"]})
        for call in turn.get("tool_calls") or ():
            function = call["function"]
            made = {"id": call["id"], "name": function["name"], "input": json.loads(function["arguments"])}
            blocks.append({"type": "tool_use", **made})
        role = "assistant" if turn["role"] == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns
