"""Writes two summaries in full, which people can judge; ``python -m benchmarks.fidelity.summaries`` prints them.

``docs/summaries.txt`` has what it prints, and ``tests/fidelity/test_two_summaries.py`` compares the two.
"""

from __future__ import annotations

import asyncio
import json

from benchmarks.fidelity.cases import Case
from benchmarks.fidelity.corpora import corpus_cases
from benchmarks.fidelity.measuring import MODEL
from tidemark.core.ports import SummaryTask
from tidemark.dialects.chat.message import parse_message
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.tokens import LocalTokenCounter

MAX_TOKENS = 500
TALKS = (("support", 0, "A case of support"), ("private", -1, "A private talk"))
"""A kind of talk, which one of its talks, and its title."""


def summary_of(case: Case, counter: LocalTokenCounter) -> str:
    """Return the summary of all messages of a talk within ``MAX_TOKENS``."""
    messages = [parse_message(json.dumps(value).encode(), value, place) for place, value in enumerate(case.messages)]
    task = SummaryTask(messages, None, MAX_TOKENS, MODEL)
    return asyncio.run(ExtractiveSummarizer(counter).summarize(task)).text


def both_summaries() -> str:
    """Return both summaries, each below a line that says what it is of."""
    counter = LocalTokenCounter()
    parts: list[str] = []
    for kind, place, title in TALKS:
        case = corpus_cases([kind])[place]
        tokens = sum(counter.count_text(str(message["content"]), MODEL) for message in case.messages)
        parts.append(
            f"{title} of {len(case.messages)} messages and {tokens:,} tokens, in {MAX_TOKENS} by `extractive`:\n\n"
            f"{summary_of(case, counter)}\n"
        )
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(both_summaries(), end="")
