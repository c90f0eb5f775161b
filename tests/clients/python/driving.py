"""What every driver of a Python client shares: where Tidemark is, what is asked, and how answers are reported.

A driver runs in the clients' own environment, as `python DRIVER DIALECT SCENARIO...`. It makes one client for each
scenario and prints one line of JSON for each: the answers, and of how many pieces a stream was.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

BASE_URL = os.environ["TIDEMARK_URL"]
V1 = f"{BASE_URL}/v1"
MODEL = "small"
CITY = "Paris"
TURNS = 12


class Client(Protocol):
    """One client in one dialect; ``Client(key)`` makes it."""

    def whole(self, question: str) -> str:
        """Ask for a whole answer."""

    def stream(self, question: str) -> list[str]:
        """Ask for a stream; return its pieces."""

    def tools(self, question: str) -> str:
        """Offer ``weather``, run it when it is called, and return the last answer."""

    def talk(self, questions: Sequence[str]) -> list[str]:
        """Hold one conversation; return its answers."""


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"It is sunny in {city}."


def questions() -> list[str]:
    """The questions of a talk that crosses the high water."""
    return [f"Point {turn}: " + " ".join(f"w{turn}x{word % 7}" for word in range(60)) for turn in range(TURNS)]


def run(clients: dict[str, Callable[[str], Client]]) -> None:
    """Run the scenarios that the command line names."""
    dialect, *scenarios = sys.argv[1:]
    for scenario in scenarios:
        client = clients[dialect](f"sk-{scenario}-{os.environ['CLIENT_NAME']}")
        outcome: dict[str, Any] = {"scenario": scenario}
        if scenario == "talk":
            outcome["texts"] = client.talk(questions())
        elif scenario == "stream":
            pieces = client.stream("Say hello.")
            outcome |= {"texts": ["".join(pieces)], "pieces": len(pieces)}
        else:
            outcome["texts"] = [getattr(client, scenario)("Say hello.")]
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()
