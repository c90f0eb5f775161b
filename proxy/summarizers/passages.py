"""Splits utterances into sentences once, for all that read them: the ledger, and the names of a loss receipt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.summarizers.deadline import Deadline
from proxy.summarizers.signals import sentences
from proxy.summarizers.transcript import Utterance


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of one speaker at one place, with its sentences."""

    speaker: str
    text: str
    sentences: tuple[str, ...]


def passages(utterances: Iterable[Utterance], deadline: Deadline) -> list[Passage]:
    """Return utterances with their sentences.

    :raises SummaryOverdue: the deadline has passed
    """
    return [
        Passage(utterance.speaker, utterance.text, tuple(deadline.over(sentences(utterance.text))))
        for utterance in utterances
    ]
