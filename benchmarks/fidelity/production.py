"""Feeds the written talks to a whole Tidemark, turn by turn, and asks their questions at the end.

``python -m benchmarks.fidelity.production`` runs it, with the driver of ``tidemark bench fidelity --window``: a whole
Tidemark, its own store and an upstream that answers with the talk's own texts. The model's window is small, so that a
talk is compacted several times with the default marks. A fact is kept if it stands in the request that the upstream
gets for its question: in a message word for word, in a line of the summary, or in what is recalled. It is measured
without recall, and with it as by default; the talk's own messages recall as well, and leave less for the question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.fidelity.cases import Case, Conversation, Fact
from benchmarks.fidelity.corpora import WrittenTalk, measured_talks
from benchmarks.fidelity.survival import surviving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.fidelity.replaying import ConversationReplay, Forwarded, replay_settings, replaying, turns_of
from tidemark.telemetry.logging import configure
from tidemark.tokens import LocalTokenCounter

WINDOW, SMALL_WINDOW = 8192, 3072
"""The window in tokens for private talks, and for the other kinds, whose talks are shorter."""
LONG_KINDS = ("private", "meetings")
"""The kinds that are long enough to be compacted, and whose facts are asked for in words."""
RECALLS = {"0": 0, "auto": None}
PARTS = ("kept", "in messages", "in summary", "only recall")
MODEL = "gpt-4o"
"""The model whose tokens are counted."""


def parts_of(forwarded: Forwarded) -> Sequence[Sequence[str]]:
    """Return the messages before the question, the lines of the summary, and what is recalled."""
    return forwarded.messages[:-1], forwarded.summary, forwarded.recalled


@dataclass
class Sums:
    """What is known of one kind of talks."""

    facts: int = 0
    survivors: int = 0
    verbatim: int = 0
    """The kept facts that stand in a message which was not replaced."""
    summarized: int = 0
    """Those that stand in the summary, whether or not also in a message."""
    recalled: int = 0
    """Those that stand only in what is recalled."""
    compactions: int = 0
    """How often a summary covered more messages than before."""
    tokens: list[tuple[int, int, int]] = field(default_factory=list)
    """For each question: the tokens of the request, of its summary and of what is recalled."""
    lost: list[Fact] = field(default_factory=list)

    def add(self, case: Case, fact: Fact, forwarded: Forwarded) -> None:
        """Add a question's request."""
        self.facts += 1
        verbatim, summarized, recalled = (bool(surviving(case, [fact], part)) for part in parts_of(forwarded))
        self.verbatim += verbatim
        self.summarized += summarized
        self.recalled += recalled and not verbatim and not summarized
        if verbatim or summarized or recalled:
            self.survivors += 1
        else:
            self.lost.append(fact)

    def means(self) -> tuple[float, ...]:
        """Return the mean tokens of a request, of its summary and of what is recalled."""
        return tuple(sum(column) / len(self.tokens) for column in zip(*self.tokens, strict=True))


@asynccontextmanager
async def running_proxy(window: int = WINDOW, recall: int | None = 0) -> AsyncIterator[ConversationReplay]:
    """Yield a Tidemark whose model has a small window; everything is stopped at the end.

    :param recall: the key ``compaction.defaults.recall.max_tokens``; None is ``auto``
    """
    settings = replay_settings(load(None, {}), [MODEL], window, {"max_tokens": recall})
    async with replaying(create_app, settings) as replay:
        yield replay


async def say(proxy: ConversationReplay, messages: Conversation, reply: Mapping[str, Any], key: str) -> Forwarded:
    """Send the messages of a talk; return what the upstream got."""
    return await proxy.send(json.dumps({"model": MODEL, "messages": messages}).encode(), reply, key)


async def measure_talk(proxy: ConversationReplay, talk: WrittenTalk, sums: Sums) -> None:
    """Say a talk, and ask each of its questions in a copy of it."""
    messages, covered, key = talk.messages, 0, f"{talk.kind} {talk.name}"
    for place in turns_of(messages):
        now = (await say(proxy, messages[:place], messages[place], key)).left_out
        sums.compactions += now > covered
        covered = max(covered, now)
    case, counter = talk.case, LocalTokenCounter()
    for fact in case.facts:
        question = [*messages, {"role": "user", "content": fact.question}]
        forwarded = await say(proxy, question, {"role": "assistant", "content": "I see."}, key)
        sums.add(case, fact, forwarded)
        texts = ["\n".join(part) for part in parts_of(forwarded)]
        counts = [counter.count_text(text, MODEL) for text in texts]
        sums.tokens.append((sum(counts), counts[1], counts[2]))


async def measure_kind(kind: str, window: int, recall: int | None) -> Sums:
    """Measure all talks of a kind."""
    sums = Sums()
    async with running_proxy(window, recall) as proxy:
        for talk in measured_talks([kind]):
            await measure_talk(proxy, talk, sums)
    return sums


def cells_of(kind: str, window: int, recall: str, sums: Sums) -> list[str]:
    """Return a line of the table."""
    shares = [share / sums.facts for share in (sums.survivors, sums.verbatim, sums.summarized, sums.recalled)]
    means = [f"{mean:,.0f}" for mean in sums.means()]
    return [
        kind,
        str(window),
        recall,
        str(sums.facts),
        *(f"{share:.0%}" for share in shares),
        str(sums.compactions),
        *means,
    ]


def main() -> None:
    """Print one line for each kind of talks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(LONG_KINDS), help="of the written talks, with a comma between them")
    parser.add_argument("--window", type=int, help=f"tokens; {WINDOW} for private talks and {SMALL_WINDOW} for others")
    parser.add_argument("--lost", action="store_true", help="also print the questions whose facts are lost")
    arguments = parser.parse_args()
    configure("error")
    print("a fact may stand in a message and in the summary")
    heads = ("kind", "window", "recall", "facts", *PARTS, "compactions", "tokens", "of summary", "of recall")
    print(" ".join(f"{head:>11}" for head in heads))
    for kind in arguments.kinds.split(","):
        window = arguments.window or (WINDOW if kind == "private" else SMALL_WINDOW)
        for name, recall in RECALLS.items():
            sums = asyncio.run(measure_kind(kind, window, recall))
            print(" ".join(f"{cell:>11}" for cell in cells_of(kind, window, name, sums)), flush=True)
            if arguments.lost:
                for fact in sums.lost:
                    print(f"  lost: {fact.question} {' '.join(fact.words)}")


if __name__ == "__main__":
    main()
