"""Checks the answer of a summarizer model: a text that is no summary must never replace messages.

``llm`` calls this. A wrong answer raises ``SummaryRejected``, and the compactor applies the failure policy.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from tidemark.core.conversation.prose import is_heading
from tidemark.core.errors import SummaryRejected
from tidemark.summarizers.prompts import CLOSE, OPEN

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_PREAMBLE = re.compile(
    r"\A(?:sure|certainly|of course|okay|here(?: is|['\u2019]s))\b[^\n]{0,120}:\s*\n+", re.IGNORECASE
)
_REFUSAL = re.compile(
    r"\A\W*(?:i(?:['\u2019]m| am) (?:sorry|afraid|unable|not able)|sorry[,.]"
    r"|i (?:can(?:not|['\u2019]t)|won['\u2019]t|will not) |as an ai\b|unfortunately,? i\b|i apologi[sz]e)",
    re.IGNORECASE,
)
_REFUSAL_WORDS = 80
"""A refusal has fewer words; a longer text that starts with regret is the summary of a conversation about it."""
_TOOL_CALL = re.compile(
    r"\A\W*(?:<tool_call>|<function|\[TOOL_CALLS\]|\{\s*\"(?:name|function|tool|tool_calls|arguments)\"\s*:)"
)
_LEAST_WORDS = 4
_LONG_INPUT_TOKENS = 400
_LEAST_SHARE = 60
"""Tokens of a long input for which its summary has at least one word, up to ``_ENOUGH_WORDS``."""
_ENOUGH_WORDS = 12
_ECHO_LINE_CHARS = 40
_ECHO_SHARE = 0.7
_INSTRUCTIONS = (OPEN, CLOSE, "holds no instructions to you", "leaving out those that would be empty")


def clean_answer(answer: str) -> str:
    """Return an answer without thoughts, without a fence around it, and without an introductory line."""
    text = _THOUGHTS.sub("", answer).strip()
    fenced = _FENCE.match(text)
    return _PREAMBLE.sub("", fenced[1] if fenced else text).strip()


def judge(text: str, material: str, *, text_tokens: int, material_tokens: int) -> None:
    """Accept a cleaned answer, or reject it.

    :param material: what the model was to summarize: previous summary and transcript
    :raises SummaryRejected: it is empty, has headings only, is too short, a refusal, a tool call, an echo, or longer
        than the material
    """
    words = len(text.split())
    if not text:
        raise SummaryRejected("the summarizer's answer was empty")
    if all(is_heading(line) for line in text.splitlines() if line.strip()):
        raise SummaryRejected("the summarizer's answer had headings only")
    if _TOOL_CALL.match(text):
        raise SummaryRejected("the summarizer answered with a tool call")
    if words < _REFUSAL_WORDS and _REFUSAL.match(text):
        raise SummaryRejected("the summarizer refused")
    least = min(_ENOUGH_WORDS, max(_LEAST_WORDS, material_tokens // _LEAST_SHARE))
    # Scripts without spaces have few words; for them, tokens measure the length.
    if material_tokens > _LONG_INPUT_TOKENS and words < least and text_tokens < least:
        raise SummaryRejected(f"the summarizer's answer was too short: {words} words")
    if text_tokens > material_tokens:
        raise SummaryRejected(f"the answer ({text_tokens} tokens) was longer than its input ({material_tokens})")
    if any(mark in text for mark in _INSTRUCTIONS) or _echoes(text, material):
        raise SummaryRejected("the summarizer echoed its input")


def _echoes(text: str, material: str) -> bool:
    """Return whether most of the answer is lines of the transcript, with their speakers."""
    long_lines = [line.strip() for line in text.splitlines() if len(line.strip()) >= _ECHO_LINE_CHARS]
    quoted = [line for line in long_lines if line.startswith(("User: ", "Assistant: ", "Tool: "))]
    # In sorted lines a prefix stands right before its line, so that each look-up is a bisection.
    lines = sorted(line.strip() for line in material.splitlines()) if quoted else []
    places = [bisect_left(lines, line) for line in quoted]
    pairs = zip(quoted, places, strict=True)
    echoed = sum(len(line) for line, place in pairs if place < len(lines) and lines[place].startswith(line))
    return echoed > _ECHO_SHARE * len(text)
