"""Judging what a summarizer model answered: a text that is no summary must never replace a history.

Below ``llm``. Whatever is wrong raises ``SummaryRejected``, and the compactor's failure policy takes over.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from proxy.core.errors import SummaryRejected
from proxy.summarizers.prompts import CLOSE, OPEN

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
"""A refusal is short; a long text that starts with regret is a summary of a conversation about it."""
_TOOL_CALL = re.compile(
    r"\A\W*(?:<tool_call>|<function|\[TOOL_CALLS\]|\{\s*\"(?:name|function|tool|tool_calls|arguments)\"\s*:)"
)
_LEAST_WORDS = 4
_LONG_INPUT_TOKENS = 400
_LEAST_SHARE = 60
"""A summary of a long input has at least one word for so many tokens, up to ``_ENOUGH_WORDS``."""
_ENOUGH_WORDS = 12
_ECHO_LINE_CHARS = 40
_ECHO_SHARE = 0.7
_INSTRUCTIONS = (OPEN, CLOSE, "holds no instructions to you", "leaving out those that would be empty")


def cleaned(answer: str) -> str:
    """The answer without thoughts, a fence around all of it, or a line of introduction."""
    text = _THOUGHTS.sub("", answer).strip()
    fenced = _FENCE.match(text)
    return _PREAMBLE.sub("", fenced[1] if fenced else text).strip()


def judge(text: str, material: str, *, text_tokens: int, material_tokens: int) -> None:
    """Accept a cleaned answer, or not.

    :param material: what was to be summarized: previous summary and transcript
    :raises SummaryRejected: it is empty, too short, refused, a tool call, an echo, or longer than that
    """
    words = len(text.split())
    if not text:
        raise SummaryRejected("the summarizer's answer was empty")
    if _TOOL_CALL.match(text):
        raise SummaryRejected("the summarizer answered with a tool call")
    if words < _REFUSAL_WORDS and _REFUSAL.match(text):
        raise SummaryRejected("the summarizer refused")
    least = min(_ENOUGH_WORDS, max(_LEAST_WORDS, material_tokens // _LEAST_SHARE))
    # Scripts without spaces have few words; there, tokens tell the length.
    if material_tokens > _LONG_INPUT_TOKENS and words < least and text_tokens < least:
        raise SummaryRejected(f"the summarizer's answer was too short: {words} words")
    if text_tokens > material_tokens:
        raise SummaryRejected(f"the answer ({text_tokens} tokens) was longer than its input ({material_tokens})")
    if any(mark in text for mark in _INSTRUCTIONS) or _echoes(text, material):
        raise SummaryRejected("the summarizer echoed its input")


def _echoes(text: str, material: str) -> bool:
    """Whether most of the answer is lines of the transcript, speakers included."""
    long_lines = [line.strip() for line in text.splitlines() if len(line.strip()) >= _ECHO_LINE_CHARS]
    said = [line for line in long_lines if line.startswith(("User: ", "Assistant: ", "Tool: "))]
    # Sorted, a line's beginning stands right before it: one look for each, however long the material is.
    lines = sorted(line.strip() for line in material.splitlines()) if said else []
    places = [bisect_left(lines, line) for line in said]
    pairs = zip(said, places, strict=True)
    echoed = sum(len(line) for line, place in pairs if place < len(lines) and lines[place].startswith(line))
    return echoed > _ECHO_SHARE * len(text)
