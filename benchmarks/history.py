"""Measures what a turn of a stored history costs, by the length of its conversation.

``make bench-history`` runs it, with a real server, its store and an upstream as processes of their own. Each turn sends
one new message; long conversations have a summary. Only the CPU of Tidemark's process counts. Rounds of all lengths are
interleaved, so a busy machine slows all equally, and the smallest of each counts. The exit code is 1 where the longest
conversation costs more than ``MOST_RATIO`` times what the shortest does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.counting import machine
from benchmarks.speed.load import HOST
from benchmarks.speed.machine import usage
from benchmarks.speed.systems import TIDEMARK, UPSTREAM, start
from benchmarks.speed.work import CHAT_PATH, NARROW

LENGTHS = (100, 1_000, 10_000)
"""Stored messages at the beginning."""
MOST_RATIO = 1.5
WORDS = 60
"""Of each message, which has about 360 bytes as a talk's messages do."""
TURNS = 40
"""Of each length in each round."""


@dataclass(frozen=True)
class Talk:
    """One stored conversation."""

    name: str
    client: httpx.Client
    numbers: Iterator[int]

    def say(self) -> None:
        """Send one new message."""
        new_messages = [{"role": "user", "content": text(next(self.numbers))}]
        headers = {"x-tidemark-conversation": self.name, "x-tidemark-history": "stored"}
        self.client.post(
            CHAT_PATH, json={"model": NARROW, "messages": new_messages, "max_tokens": 100}, headers=headers
        ).raise_for_status()


def text(number: int) -> str:
    """Make a text like no other."""
    return f"Point {number}: " + " ".join(f"word{(number * 7 + place) % 997}" for place in range(WORDS))[:340]


def imported(client: httpx.Client, length: int) -> Talk:
    """Store a conversation of so many messages."""
    lines = [
        json.dumps({"role": "assistant" if number % 2 else "user", "content": text(number)}) for number in range(length)
    ]
    name = f"talk of {length}"
    client.post(
        "/tidemark/conversations/import", params={"model": NARROW, "name": name}, content="\n".join(lines)
    ).raise_for_status()
    return Talk(name, client, iter(range(length, 10_000_000)))


def main() -> None:
    """Print the CPU of a turn at each length, and the ratio of the longest to the shortest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=TURNS)
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder_name, ExitStack() as stack:
        folder = Path(folder_name)
        upstream = start(UPSTREAM, "", folder / "upstream")
        stack.callback(upstream.stop)
        tidemark = start(TIDEMARK, f"http://{HOST}:{upstream.port}", folder / "tidemark")
        stack.callback(tidemark.stop)
        client = stack.enter_context(
            httpx.Client(
                base_url=f"http://{HOST}:{tidemark.port}", headers={"authorization": "Bearer bench"}, timeout=300
            )
        )
        question = {"role": "user", "content": "Hello."}
        client.post(CHAT_PATH, json={"model": NARROW, "messages": [question], "max_tokens": 10}).raise_for_status()
        talks = {length: imported(client, length) for length in LENGTHS}
        figures: dict[int, list[float]] = {length: [] for length in LENGTHS}
        for number in range(arguments.rounds + 1):
            for length, talk in talks.items():
                before = usage(tidemark.pid).cpu_ms
                for _ in range(arguments.turns):
                    talk.say()
                if number:  # the first round makes the first summary
                    figures[length].append((usage(tidemark.pid).cpu_ms - before) / arguments.turns)
    for length, costs in figures.items():
        print(
            f"{length:>7,} messages: {min(costs):6.2f} ms of CPU a turn ({', '.join(f'{cost:.2f}' for cost in costs)})"
        )
    ratio = min(figures[LENGTHS[-1]]) / min(figures[LENGTHS[0]])
    print(f"{LENGTHS[-1]:,} messages cost {ratio:.2f} times what {LENGTHS[0]} cost; the goal is {MOST_RATIO} at most")
    sys.exit(ratio > MOST_RATIO)


if __name__ == "__main__":
    main()
