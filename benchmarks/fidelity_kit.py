"""Measures the extractive strategy with the corpora of ``compaction-conformance-kit``, where that package is installed.

``make bench-fidelity-kit`` runs it. The kit (https://pypi.org/project/compaction-conformance-kit/) is not among the
dependencies: ``PYTHONPATH`` names the folder in which it is. Its budgets are characters of the original, and each round
compacts the text of the round before. The sessions of its seeds 1 to 4 are its own benchmark's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.counting import MODEL, parsed
from tidemark.core.ports import SummaryTask
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.tokens import LocalTokenCounter

BUDGETS = (0.10, 0.20, 0.30)
ROUNDS = (1, 5, 10)
_COUNTER = LocalTokenCounter()


class ExtractiveCompactor:
    """Compacts turns as the kit asks for it; has the form of its protocol ``Compactor``."""

    name = "tidemark-extractive"

    def compact(self, turns: Sequence[Any], round_num: int = 1, budget_chars: int | None = None) -> Any:
        """Return the kit's value of a summary of at most ``budget_chars`` characters."""
        text = summary_of(turns, round_num, budget_chars or 1_000_000)
        return import_module("compaction_kit.compacted").CompactedContext(text, self.name, round_num)


def summary_of(turns: Sequence[Any], round_num: int, characters: int) -> str:
    """Return a summary within a number of characters: its bound in tokens is lowered until it fits."""
    values = [{"role": turn.role, "content": turn.text} for turn in turns]
    previous = values[0]["content"] if round_num > 1 else None
    messages = () if round_num > 1 else parsed(values).messages
    tokens = characters // 3
    while True:
        task = SummaryTask(messages, previous, max(tokens, 1), MODEL)
        text = asyncio.run(ExtractiveSummarizer(_COUNTER).summarize(task)).text
        if len(text) <= characters or tokens <= 1:
            return text
        tokens = min(tokens - 1, int(tokens * (characters / len(text)) ** 0.5))


def survival(name: str, seeds: Sequence[int], budget: float, rounds: int) -> tuple[float, float]:
    """Return the share of all canaries that a compaction keeps, and that of the safety rules.

    :param name: the kit's corpus, ``random`` or ``generated``
    """
    module = {"random": "corpus", "generated": "generated"}[name]
    build = getattr(import_module(f"compaction_kit.{module}"), f"build_{name}_session")
    run = import_module("compaction_kit.runner").run_conformance
    survivors: list[bool] = []
    rules: list[bool] = []
    for seed in seeds:
        session, canaries = build(seed)
        done = run(session, ExtractiveCompactor(), rounds=rounds, canaries=canaries, budget_fraction=budget)
        final = done.rounds[-1].survived
        survivors += final.values()
        rules += [final[canary.id] for canary in canaries if canary.type.value == "safety_rule"]
    return sum(survivors) / len(survivors), sum(rules) / len(rules)


def main() -> None:
    """Print the survival by corpus, budget and rounds."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=8)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    try:
        import_module("compaction_kit")
    except ImportError:
        sys.exit("Install compaction-conformance-kit into a folder of your own, and name that folder in PYTHONPATH.")
    rows = [
        (name, rounds, budget, *survival(name, range(1, options.seeds + 1), budget, rounds))
        for name in ("random", "generated")
        for rounds in ROUNDS
        for budget in BUDGETS
    ]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'corpus':<12}{'rounds':>7}{'budget':>8}{'survived':>10}{'safety rules':>14}")
    for name, rounds, budget, share, safe in rows:
        print(f"{name:<12}{rounds:>7}{budget:>8.0%}{share:>10.1%}{safe:>14.0%}")


if __name__ == "__main__":
    main()
