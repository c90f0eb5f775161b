"""Reads the talks in ``corpora/``, which were written for this measure, with the facts that stand in them.

Each file is a conversation as a client sends it, and says of each fact in which message it stands. The talks are of the
kinds that public corpora have: private talks, support with tools, meetings, services in several languages, and coding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.fidelity.cases import Case, Conversation, Fact

FOLDER = Path(__file__).parent / "corpora"
KINDS = tuple(sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir()))
"""The kinds of talks, by the names of the folders."""
HELD_OUT = Path(__file__).parent / "held_out"
"""Talks by authors who knew no rule of the summarizers, to check rules with. One rule and two weights were found with
them since, so that the next check of those needs fresh ones."""
SHORT_KINDS = ("arabic", "chinese", "german")
"""The kinds whose talks are too short to be compacted. One client asks for all of them, one after the other."""
NAMED = "{}, with names"
"""The corpus in which a value survives only beside the name of its owner."""


@dataclass(frozen=True, slots=True)
class PlacedFact:
    """A fact, and the place at which it stands."""

    fact: Fact
    place: int
    """The message that has it first."""
    owner: str
    """The name to which a value belongs; empty if the fact needs none."""
    used: int
    """The later message whose call needs it; 0 if a question needs it, or a later step of another form."""


@dataclass(frozen=True, slots=True)
class WrittenTalk:
    """A talk of a file."""

    kind: str
    name: str
    messages: Conversation
    compacted: int
    """How many messages are compacted; those after them use the facts."""
    facts: Sequence[PlacedFact]

    @property
    def case(self) -> Case:
        """Return what is compacted, with its facts."""
        return Case(self.kind, self.messages[: self.compacted], [placed.fact for placed in self.facts])

    @property
    def named_case(self) -> Case:
        """Return the same with the stricter facts: a value, and its owner's name in the same line."""
        facts = [
            Fact(placed.fact.kind, (*placed.fact.words, placed.owner), placed.fact.question)
            for placed in self.facts
            if placed.owner
        ]
        return Case(NAMED.format(self.kind), self.messages[: self.compacted], facts)


def written_talks(kinds: Iterable[str] = KINDS, folder: Path = FOLDER) -> list[WrittenTalk]:
    """Return the talks of some kinds."""
    return [_talk(path) for kind in kinds for path in sorted((folder / kind).glob("*.json"))]


def measured_talks(kinds: Iterable[str] = KINDS, folder: Path = FOLDER) -> list[WrittenTalk]:
    """Return the talks of some kinds as they are measured: the short ones of a kind are one conversation."""
    talks: list[WrittenTalk] = []
    for kind in kinds:
        own = written_talks([kind], folder)
        talks += [_joined(own)] if own and kind in SHORT_KINDS else own
    return talks


def corpus_cases(kinds: Iterable[str] = KINDS, folder: Path = FOLDER) -> list[Case]:
    """Return a case for each measured talk, and the stricter one if values have owners."""
    cases: list[Case] = []
    for talk in measured_talks(kinds, folder):
        cases.append(talk.case)
        if talk.named_case.facts:
            cases.append(talk.named_case)
    return cases


def _joined(talks: Sequence[WrittenTalk]) -> WrittenTalk:
    messages: Conversation = []
    facts: list[PlacedFact] = []
    for talk in talks:
        facts += [replace(placed, place=placed.place + len(messages)) for placed in talk.facts]
        messages += talk.messages
    return WrittenTalk(talks[0].kind, talks[0].kind, messages, len(messages), facts)


def _talk(path: Path) -> WrittenTalk:
    value = json.loads(path.read_text(encoding="utf-8"))
    messages = value["messages"]
    facts = [_fact(fact) for fact in value["facts"]]
    return WrittenTalk(value["corpus"], path.stem, messages, value.get("compacted", len(messages)), facts)


def _fact(value: Mapping[str, Any]) -> PlacedFact:
    fact = Fact(value["kind"], tuple(value["words"]), value.get("question", ""))
    return PlacedFact(fact, value["place"], value.get("owner", ""), value.get("used", 0))
