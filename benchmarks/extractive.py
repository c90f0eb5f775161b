"""Measures the extractive strategy and loss receipts on 100,000 tokens, by kind of conversation and by bound.

``make bench-extractive`` runs it. Each round scores the whole conversation again. The measured time of a summary is the
time that a request waits, with the count of the finished text; that of its receipt is CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.counting import MODEL, TOKENS, Values, conversation, machine, parsed
from tidemark.core.conversation.messages import Message
from tidemark.core.phrases import Reading
from tidemark.core.ports import SummaryTask
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.receipts import details_of
from tidemark.tokens import LocalTokenCounter

BOUNDS = (256, 4096, 20_000)
SENTENCES = (
    "I think we should look at {noun} {number} before we go on.",
    "The {noun} was moved to shelf {number} last {day}, as Ana said.",
    "Never change {noun} {number} without asking me.",
    "Thanks, that helps!",
    "What happens to {noun} {number} when the {other} is gone?",
    "We decided to keep the {noun} and to sell the {other} for {number} euros.",
)
WORDS = [
    "boat",
    "lamp",
    "ledger",
    "garden",
    "engine",
    "window",
    "letter",
    "harbour",
    "pump",
    "invoice",
    "ladder",
    "map",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]


def chat() -> Values:
    """Make a conversation of short sentences."""
    chance = random.Random(3)
    texts = []
    for _ in range(TOKENS // 39):
        conversation = [
            chance.choice(SENTENCES).format(
                noun=chance.choice(WORDS),
                other=chance.choice(WORDS),
                number=chance.randrange(1000),
                day=chance.choice(DAYS),
            )
            for _ in range(3)
        ]
        texts.append(" ".join(conversation))
    return [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]


def results() -> Values:
    """Make an agent's conversation: long tool results with few words between them."""
    chance = random.Random(5)
    values: Values = [{"role": "user", "content": "Find out why the nightly import fails. Never touch production."}]
    for place in range(TOKENS // 2000):
        rows = [{"id": row, "name": chance.choice(WORDS), "took": chance.random()} for row in range(70)]
        values.append({"role": "tool", "tool_call_id": f"c{place}", "content": json.dumps(rows)})
        values.append({"role": "assistant", "content": f"Table {place} holds {chance.randrange(9999)} rows."})
    return values


KINDS: dict[str, Callable[[], Values]] = {"prose and code": conversation, "short sentences": chat, "tools": results}


def milliseconds(summarizer: ExtractiveSummarizer, task: SummaryTask, rounds: int) -> tuple[list[float], str]:
    """Return the milliseconds of each round, and the text."""
    loop, took, text = asyncio.new_event_loop(), [], ""
    for _ in range(rounds):
        start = time.perf_counter()
        text = loop.run_until_complete(summarizer.summarize(task)).text
        took.append((time.perf_counter() - start) * 1000)
    loop.close()
    return took, text


def receipt_milliseconds(messages: tuple[Message, ...], text: str, reading: Reading, rounds: int) -> list[float]:
    """Return the milliseconds of CPU of each comparison of a summary with its messages.

    :param reading: what the strategy has read of them, which the receipt finds in a compaction
    """
    took = []
    for _ in range(rounds):
        start = time.thread_time()
        details_of(messages, "", text, reading)
        took.append((time.thread_time() - start) * 1000)
    return took


def rows(rounds: int) -> Iterator[str]:
    """Yield a line for each kind and bound."""
    counter = LocalTokenCounter()
    summarizer = ExtractiveSummarizer(counter)
    for name, make in KINDS.items():
        messages: tuple[Message, ...] = parsed(make()).messages
        tokens = sum(counter.count_message(message, MODEL) for message in messages)
        for bound in BOUNDS:
            took, text = milliseconds(summarizer, SummaryTask(messages, None, bound, MODEL), rounds)
            reading = Reading()
            asyncio.run(summarizer.summarize(SummaryTask(messages, None, bound, MODEL, reading=reading)))
            receipt = receipt_milliseconds(messages, text, reading, rounds)
            summary_tokens = counter.count_text(text, MODEL)
            yield (
                f"{name:<16}{tokens:>9}{len(messages):>10}{bound:>8}{summary_tokens:>9}"
                f"{statistics.median(took):>11.0f}{min(took):>7.0f}{statistics.median(receipt):>13.0f}"
            )


def main() -> None:
    """Print the table and the machine."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=15)
    rounds = arguments.parse_args().rounds
    print(f"{machine()}; {rounds} rounds")
    heads = f"{'conversation':<16}{'tokens':>9}{'messages':>10}{'bound':>8}{'written':>9}{'median ms':>11}{'best':>7}"
    print(f"{heads}{'receipt, ms':>13}")
    for row in rows(rounds):
        print(row)


if __name__ == "__main__":
    main()
