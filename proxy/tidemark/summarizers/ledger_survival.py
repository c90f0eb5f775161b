"""Tells which entries of a ledger a text still has: word for word, shortened, or not at all.

Loss receipts (``receipts.py``) use it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.receipt import Detail, DetailKind, Survival
from tidemark.summarizers.compared_text import ComparedText
from tidemark.summarizers.deadline import UNBOUNDED, Deadline
from tidemark.summarizers.details import COMMANDS, FILES, IDENTIFIERS, LINKS
from tidemark.summarizers.ledger import ERROR, RULE, Ledger
from tidemark.summarizers.request import REQUEST
from tidemark.summarizers.sentences import words_of

_SENTENCE_KINDS: Mapping[str, DetailKind] = {
    RULE: "rules",
    REQUEST: "requests",
    ERROR: "errors",
}
EXACT_KINDS: Mapping[str, DetailKind] = {
    FILES: "files",
    COMMANDS: "commands",
    IDENTIFIERS: "identifiers",
    LINKS: "links",
}
"""Kinds of the ledger that a text has exactly or not at all."""


def ledger_details(ledger: Ledger, text: ComparedText, deadline: Deadline = UNBOUNDED) -> list[tuple[str, Detail]]:
    """Return each entry's kind in the ledger, and what became of it in a text.

    :raises SummaryOverdue: the deadline has passed
    """
    details: list[tuple[str, Detail]] = []
    for kind, entries in ledger.entries.items():
        for entry in deadline.over(entries):
            words = words_of(entry)
            if not words:
                continue  # nothing but punctuation
            if sentence_kind := _SENTENCE_KINDS.get(kind):
                details.append((kind, Detail(sentence_kind, entry, text.sentence_survival(words))))
            elif exact_kind := EXACT_KINDS.get(kind):
                survival: Survival = "kept" if text.has_wording(entry, words) else "dropped"
                details.append((kind, Detail(exact_kind, entry, survival)))
    return details
