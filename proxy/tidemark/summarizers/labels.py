"""Recognizes the labels with which speakers begin a statement: ``DECISION: ...``, ``Note: ...``."""

from __future__ import annotations

import re

RULE_LABELS = "rule|constraint|preference|policy|requirement|important|remember|guideline|restriction"
LABEL = re.compile(
    rf"(?:(?-i:[A-Z][A-Z _-]{{2,30}})|(?:[\w-]+ )?(?:{RULE_LABELS}|fact|decision|note|goal|todo|warning|reminder"
    r"|goal state|context|summary|result|conclusion)s?)\s?:\s+",
    re.IGNORECASE,
)
RULE_LABEL = re.compile(rf"(?:[\w-]+ )?(?:{RULE_LABELS})s?\s?:\s", re.IGNORECASE)
_SAFETY = re.compile(r"(?:safety|security|danger|warning)\b[\w ]{0,20}:", re.IGNORECASE)


def is_labelled(sentence: str) -> bool:
    """Return whether the speaker labelled a sentence: ``DECISION: ...``, ``Note: ...``."""
    return ":" in sentence and bool(LABEL.match(sentence))


def label_of(sentence: str) -> str:
    """Return the label with which a sentence begins, with its colon; empty if it has none."""
    match = LABEL.match(sentence + " ") if ":" in sentence else None
    return match[0].rstrip() if match else ""


def is_safety(sentence: str) -> bool:
    """Return whether a sentence begins with a label that says it concerns safety."""
    return ":" in sentence and bool(_SAFETY.match(sentence))
