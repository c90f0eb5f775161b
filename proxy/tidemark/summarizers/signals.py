"""Recognizes statements worth keeping by their wording: facts, decisions and errors.

``salience`` only gives them more weight, so that a wrong one costs little; ``ledger`` uses ``reports_error``. Patterns
are matched against single sentences of bounded length, so that no text makes them slow. The words are English.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_FACT = re.compile(
    r"\W(?:(?:my|our)\s+(?:\w+\s+){0,2}(?:name|birthday|address|e-?mail|phone|number|company|team|project|product"
    r"|budget|deadline|job|wife|husband|partner|son|daughter|dog|cat|boss|manager|repo|repository|stack|database"
    r"|goal|version|server|account|id|timezone|codename|customer|client)s?\b"
    r"|(?:is|are|was)\s+(?:called|named)\b|call me\b"
    r"|i(?:['’]m| am)\s+(?:a|an|from|based|called|\d)\b"
    r"|i\s+(?:live|work|was born|moved|study|own)\b|we\s+(?:are|use|run)\b)"
)
_OWN_NAME = re.compile(r"\W[Ii](?:['’]m| [Aa][Mm])\s+[A-Z]\w")
_DECISION = re.compile(
    r"\W(?:decided|decision|agreed|settled on|let['’]?s (?:use|go with|do)|going with|go with"
    r"|we['’]?ll (?:use|go|do)|chose|chosen|will use|approved|confirmed|resolved|concluded|fixed by"
    r"|root cause|next step|deadline|instead of|switched to|plan is|scheduled|renamed|migrated)\b"
)
_ERROR = re.compile(
    r"\W(?:\w*(?:error|exception)|traceback|failed|failure|fatal|panic|segfault|permission denied"
    r"|refused|timed out|exit code [1-9]\d*|exited with [1-9]\d*|not found)\b"
)
_ERROR_REPORT = re.compile(
    r"(?:E\s+)?(?:[\w.]{1,80}\.)?[A-Z]\w{0,60}(?:Error|Exception)(?::\s|\Z)"
    r"|(?:E\s+)?(?:fatal|error|panic|npm ERR!)(?:\[\w+\])?:?\s(?=\S)"
    r"|(?:[\w./-]{1,60}: ){1,3}(?:error|fatal): "
    r"|[^:]{1,40}: (?:[^:]{1,60}: )?(?:command not found|no such file or directory|permission denied)"
    r"|(?:\S{1,40} ){0,2}\[?(?:ERROR|FATAL|CRITICAL)\]?[: ]\s?\S"
    r"|FAILED \S"
)
_NO_ERROR = re.compile(r"\b(?:0|no) (?:failed|failures|errors?)\b|\berrors?[:=] ?0\b", re.IGNORECASE)
_FACT_WORDS = frozenset({"my", "our", "called", "named", "call", "i", "we"})
_DATED = re.compile(
    # It starts with a simple class, so that the search skips from digit to digit.
    r"[$€£\d](?:(?<=[$€£])\s?\d|(?<=\b\d)(?:\d{3}-\d\d-\d\d\b|[\d.,]{0,20}\s?(?:€|USD|EUR|dollars|euros)))"
)
_DECISION_WORDS = frozenset(
    {
        "decided",
        "decision",
        "agreed",
        "settled",
        "let",
        "lets",
        "go",
        "going",
        "we",
        "chose",
        "chosen",
        "will",
    }
    | {
        "approved",
        "confirmed",
        "resolved",
        "concluded",
        "fixed",
        "root",
        "next",
        "deadline",
        "instead",
        "switched",
    }
    | {"plan", "scheduled", "renamed", "migrated"}
)
_ERROR_WORDS = frozenset(
    {
        "error",
        "traceback",
        "failed",
        "failure",
        "fatal",
        "panic",
        "segfault",
        "denied",
        "refused",
        "timed",
        "exit",
    }
    | {"exited", "found", "exception"}
)
_SIGNS = _DECISION_WORDS | _ERROR_WORDS


def has_signs(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence may report a decision or an error: it has a word by which those are recognized."""
    return not _SIGNS.isdisjoint(words) or "Error" in sentence or "Exception" in sentence


# Each pattern is matched only if the sentence has one of its words; most have none.
def is_fact(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence says who the speaker is, names something of theirs, or has a date or a sum."""
    if not _FACT_WORDS.isdisjoint(words) and (
        _FACT.search(" " + sentence.lower()) or ("i" in words and _OWN_NAME.search(" " + sentence))
    ):
        return True
    return _may_be_dated(sentence) and _DATED.search(sentence) is not None


def _may_be_dated(sentence: str) -> bool:
    """Return whether a sentence has a sign of a date or a sum; most have none."""
    return (
        "-" in sentence
        or "$" in sentence
        or "€" in sentence
        or "£" in sentence
        or "USD" in sentence
        or "EUR" in sentence
        or "euros" in sentence
        or "dollars" in sentence
    )


def is_decision(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence reports a decision."""
    return not _DECISION_WORDS.isdisjoint(words) and bool(_DECISION.search(" " + sentence.lower()))


def is_error(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence reports an error."""
    has_name = "Error" in sentence or "Exception" in sentence
    return (has_name or not _ERROR_WORDS.isdisjoint(words)) and bool(_ERROR.search(" " + sentence.lower()))


def reports_error(line: str) -> bool:
    """Return whether a line of an output is what a program says last when it fails.

    It is stricter than ``is_error``, which a sentence that only talks about errors passes.
    """
    return bool(_ERROR_REPORT.match(line)) and not _NO_ERROR.search(line)
