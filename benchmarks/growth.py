"""Measures how the time of each function that reads a client's text grows with the text.

``make bench-growth`` runs it. Every function of ``summarizers/`` and ``tokens/`` that reads text of unbounded length is
measured at four sizes, each twice the one before, with texts that are chosen to be slow. The exit code is 1 where a
time grows faster than the text. Time is CPU time, so other load changes little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from math import log2
from typing import Any

from benchmarks.counting import MODEL, machine
from tidemark.core.conversation.exact_results import is_exact
from tidemark.core.conversation.lossless import squeezed
from tidemark.core.conversation.messages import Message, ToolCall
from tidemark.core.errors import SummaryRejected
from tidemark.core.ports import SummaryTask
from tidemark.dialects.chat.message import parse_message
from tidemark.summarizers.answers import clean_answer, judge
from tidemark.summarizers.extractive import ExtractiveSummarizer
from tidemark.summarizers.ledger import ledger_of, render_ledger
from tidemark.summarizers.request import request_of
from tidemark.summarizers.salience import candidates_of
from tidemark.summarizers.sentences import sentences, tails
from tidemark.summarizers.superseding import answer_language
from tidemark.summarizers.transcript import read_back, utterances
from tidemark.tokens import LocalTokenCounter
from tidemark.tokens.images import image_size
from tidemark.tokens.media import part_text
from tidemark.tokens.tools import render_namespace, split_tools, words
from tidemark.tokens.vocabulary import pieces

SIZES = (40_000, 80_000, 160_000, 320_000)
"""Characters."""
MOST_GROWTH = 1.5
"""Exponent of the growth between the two largest sizes: 1 is linear, 2 is the square."""
LEAST_SECONDS = 0.1
"""The shortest time in seconds whose exponent is meaningful."""
MOST_SECONDS_PER_MB = 12.0
"""The longest time for any text, because a linear function may be too slow as well."""

Text = Callable[[int], str]


def repeated(unit: str) -> Text:
    """Make a text that repeats one unit."""
    return lambda size: (unit * (size // len(unit) + 1))[:size]


def numbered(unit: str) -> Text:
    """Repeat a unit with another number each time, so that no sentence occurs twice."""

    def text(size: int) -> str:
        parts, length, number = [], 0, 0
        while length < size:
            parts.append(unit.replace("%", str(number)))
            length += len(parts[-1])
            number += 1
        return "".join(parts)[:size]

    return text


def languages(size: int) -> str:
    """Make rules about the language of answers, each in other words, so that none occurs twice."""
    beside = ("please", "always", "only", "now", "just", "again", "instead", "actually", "then")
    parts, length = [], 0
    for order in permutations(beside):
        parts.append(f"Answer in French {' '.join(order)}.\n")
        length += len(parts[-1])
        if length >= size:
            break
    return "".join(parts)[:size]


TEXTS: dict[str, Text] = {
    "language variants": languages,
    "one letter": repeated("a"),
    "spaces": repeated(" "),
    "line ends": repeated("\n"),
    "line ends and a letter": repeated("\n\n\n   \n\n\n\t\n\n\n\na"),
    "words": repeated("some words are here and "),
    "language rules": numbered("Never touch the file number % there.\nAnswer in French just every onwards but only.\n"),
    "languages": numbered("Always answer in French.\nNever use port %.\nAlways answer in German.\n"),
    "rules": numbered("You must never use port % again, and always ask first.\n"),
    "requirements": numbered("The service % must log each call and shall not lose any of them.\n"),
    "half rules": repeated("please always please also we really always i really only "),
    "half labels": repeated("a-b rule a-b rules "),
    "interjections": repeated("hey hi hello wow thanks "),
    "digits": repeated("1234567890"),
    "dotted digits": repeated("1.2.3.4.5,6,7,"),
    "half dates": repeated("2026-11-1 12:3 $1,000,000,000."),
    "numbers and nouns": numbered("there are % files of many and % rows of "),
    "half identifiers": repeated("abcdef0123-"),
    "hex": repeated("deadbeef0123456789abcdef"),
    "half addresses": repeated("a.b+c-d_e.f"),
    "addresses": numbered("mail%@example.org "),
    "half paths": repeated("a.b-c+d@e"),
    "plus": repeated("+"),
    "dashes": repeated("a-"),
    "slashes": repeated("/a"),
    "paths": numbered("src/dir%/file%.py "),
    "links": numbered("https://example.org/%/a?b=c,,,, "),
    "half links": repeated("http://,,,,"),
    "assignments": repeated("`A=b C=d `"),
    "backticks": repeated("`"),
    "half commands": repeated("`sudo A=`B=`C="),
    "commands": numbered("`git commit -m %` "),
    "half errors": repeated("errors exceptions_ fatally timed panics exit code "),
    "errors": numbered("ValueError: no value % was there\n"),
    "brackets": repeated("(((([[[[{{{{"),
    "quotes": repeated("\"'`\u201c\u2018"),
    "fences": repeated("```\n"),
    "marks": repeated("<<<>>>"),
    "thoughts": repeated("<think>"),
    "code": numbered("def function_%(a, b):\n    return {a: b, %: None};\n"),
    "json": numbered('{"key%": [%, "value %", {"nested": true}], '),
    "initials": repeated("A. B. Mr. e.g. 1. "),
    "stops": repeated(". ! ? … "),
    "bullets": repeated("\n- * • 1. 2) "),
    "speakers": numbered("\nUser: Rule: Open request: % Tool x: Error: Files: a; b; c"),
    "separators": repeated("; : ; : "),
    "capitals": repeated("ABC_DEF GHI-"),
    "Chinese": repeated("不要删除文件。总是用中文回答！"),
    "Japanese": repeated("必ず日本語で答えてください。"),
    "Arabic": repeated("لا تحذف الملفات أبدا. "),
    "Hindi": repeated("हमेशा हिंदी में जवाब दें। "),
    "Thai": repeated("ตอบเป็นภาษาไทยเสมอ"),
    "Turkish I": repeated("İıIi"),
    "combining": repeated("e\u0301\u0302\u0303"),
    "emoji": repeated("👩\u200d👩\u200d👧"),
    "line separators": repeated("a\u2028\x85\x0b\x0c\x1c"),
    "base64": repeated("QUJD/+9zQkFTRTY0"),
}


def messages_of(text: str) -> tuple[Message, ...]:
    """Make a user's message, an assistant's tool call and a tool's result of the text."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"command": text})}}
    values = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": text},
    ]
    return tuple(parse_message(json.dumps(value).encode(), value, place) for place, value in enumerate(values))


def result_of(text: str) -> tuple[Message, ToolCall]:
    """Make a tool's result of the text, and its call."""
    _, asks, result = messages_of(text)
    return result, asks.calls[0]


def many_messages_of(text: str) -> tuple[Message, ...]:
    """Split the text into messages of 40 characters, alternately the user's and the assistant's."""
    pieces = [text[start : start + 40] for start in range(0, len(text), 40)]
    values = [{"role": ("user", "assistant")[place % 2], "content": piece} for place, piece in enumerate(pieces)]
    return tuple(parse_message(json.dumps(value).encode(), value, place) for place, value in enumerate(values))


def tools_of(text: str) -> Any:
    """Make functions whose descriptions, names and literals are the text."""
    words = text.split() or [text]
    schema = {"type": "object", "properties": {f"p{n}": {"enum": [word]} for n, word in enumerate(words[:5000])}}
    return [{"type": "function", "function": {"name": "f", "description": text, "parameters": schema}}]


def judged(text: str) -> None:
    """Judge an answer that is the transcript."""
    echo = "\n".join(f"User: {line}" for line in (text[at : at + 60] for at in range(0, len(text), 60)))
    try:
        judge(clean_answer(echo), echo[1:], text_tokens=1, material_tokens=len(text))
    except SummaryRejected:
        return


class Functions:
    """The measured functions by name; each is prepared outside the measurement."""

    def __init__(self) -> None:
        self._counter = LocalTokenCounter()
        self._counter.count_text("load", MODEL)
        self._extractive = ExtractiveSummarizer(self._counter)

    def __iter__(self) -> Iterator[tuple[str, Callable[[str], Callable[[], object]]]]:
        yield "sentences", lambda text: lambda: list(sentences(text))
        yield "tails", lambda text: lambda: list(tails(text))
        yield "clean_answer", lambda text: lambda: clean_answer(text)
        yield "judge", lambda text: lambda: judged(text)
        yield "squeezed", lambda text: lambda: (squeezed(text), squeezed(f"[{text}]"), is_exact(*result_of(text)))
        yield "read_back", lambda text: lambda: list(read_back(text))
        for kind, parted in (("one", messages_of), ("many", many_messages_of)):
            yield f"utterances, {kind}", self._of(parted, lambda messages: list(utterances(messages)))
            yield f"request_of, {kind}", self._of(parted, request_of)
            yield (
                f"ledger_of, {kind}",
                self._of(parted, lambda messages: render_ledger(ledger_of(messages, "").lines())),
            )
            yield f"candidates_of, {kind}", self._of(parted, lambda messages: candidates_of(messages, None, 1000))
            yield (
                f"bulk, {kind}",
                self._of(parted, lambda messages: candidates_of(messages, None, 1000, with_bulk=True)),
            )
            yield f"extractive, {kind}", self._of(parted, self._summarize)
        yield "ledger_of, carried", lambda text: lambda: ledger_of((), text)
        yield "candidates_of, carried", lambda text: lambda: candidates_of((), text, 1000)
        yield "count_text", lambda text: lambda: LocalTokenCounter().count_text(text, MODEL)
        yield "cut_text", lambda text: lambda: self._counter.cut_text(text, MODEL, len(text) // 9)
        yield "pieces", lambda text: lambda: list(pieces(text))
        yield "tools", lambda text: self._later(render_namespace, split_tools(tools_of(text))[0])
        yield "words", lambda text: self._later(words, tools_of(text))
        yield "image_size", lambda text: lambda: image_size("data:image/jpeg;base64," + text)
        yield "part_text", lambda text: lambda: part_text({"type": "file", "file": {"file_data": text, "a": [text]}})
        yield "answer_language", lambda text: lambda: answer_language(text)

    def _of(
        self, parted: Callable[[str], tuple[Message, ...]], work: Callable[[tuple[Message, ...]], object]
    ) -> Callable[[str], Callable[[], object]]:
        def prepared(text: str) -> Callable[[], object]:
            messages = parted(text)
            return lambda: work(messages)

        return prepared

    @staticmethod
    def _later(work: Callable[[Any], object], argument: object) -> Callable[[], object]:
        return lambda: work(argument)

    def _summarize(self, messages: tuple[Message, ...]) -> str:
        return asyncio.run(self._extractive.summarize(SummaryTask(messages, None, 1000, MODEL))).text


def measured(prepare: Callable[[str], Callable[[], object]], text: Text, sizes: tuple[int, ...]) -> list[float]:
    """Return the CPU seconds at each size, the smaller of two. A size that takes a minute is the last one."""
    took: list[float] = []
    for size in sizes:
        work, times = prepare(text(size)), []
        for _ in range(2):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
            if times[-1] > 1:
                break
        took.append(min(times))
        if took[-1] > 60:
            break
    return took


def fault_of(took: list[float], sizes: tuple[int, ...]) -> str:
    """Describe the fault in the times of one function and text; empty where there is none."""
    if took[-1] < LEAST_SECONDS:
        return ""
    growth = log2(took[-1] / took[-2]) if len(took) > 1 and took[-2] > 0 else 1.0
    if growth > MOST_GROWTH:
        return f"grows with the power {growth:.2f}"
    speed = 1e6 * took[-1] / sizes[len(took) - 1]
    return f"takes {speed:.1f} s for a megabyte" if speed > MOST_SECONDS_PER_MB else ""


def main() -> int:
    """Measure, print each function's slowest text and all faults, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="functions whose name holds this")
    parser.add_argument("--texts", default="", help="texts whose name holds this")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    arguments_ = parser.parse_args()
    sizes = tuple(int(size * arguments_.scale) for size in SIZES)
    print(machine())
    print(f"{'function':24} {'slowest text':24} " + " ".join(f"{size // 1000:>6} KB" for size in sizes))
    faults: list[str] = []
    for name, prepare in Functions():
        if arguments_.only not in name:
            continue
        slowest: tuple[str, list[float]] = ("", [0.0])
        for kind, text in TEXTS.items():
            if arguments_.texts not in kind:
                continue
            took = measured(prepare, text, sizes)
            if took[-1] > slowest[1][-1]:
                slowest = (kind, took)
            if fault := fault_of(took, sizes):
                faults.append(f"{name}, {kind}: {fault} ({', '.join(f'{seconds:.3f}' for seconds in took)} s)")
        print(f"{name:24} {slowest[0]:24} " + " ".join(f"{seconds:7.3f} s" for seconds in slowest[1]), flush=True)
    print("\n".join(faults) if faults else "Everything grows with the text.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
