"""What makes a sentence worth keeping: rules, facts, decisions and errors, told by their wording.

Below ``ledger`` and ``extractive``. Patterns are tried on single sentences of bounded length, so no text
makes them slow. English first, with the commonest words of French, German and Spanish for rules: a rule that
is missed is still an ordinary sentence, a sentence wrongly taken for a rule only costs its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

SENTENCE_CHARS = 320
"""Longest piece of text that is weighed as one; about 80 tokens."""
_CLIPPED_CHARS = SENTENCE_CHARS // 2
"""What is left of a longer word where a sentence has to be cut."""
_SENTENCE_END = re.compile(
    # It starts with one plain class, so that the search leaps from white space to white space.
    r"[ \t\n](?:"
    r"(?<=[.!?…][ \t])(?<!\b[A-Z]\.[ \t])(?<!\b(?:Mr|Ms|Dr|vs|St)\.[ \t])(?<!\bMrs\.[ \t])(?<!(?:e\.g|i\.e)\.[ \t])"
    r"(?<!^\d\.[ \t])(?<!\n\d\.[ \t])(?<!\n\d\d\.[ \t])[ \t]*"
    # A line end ends a sentence, but for hard-wrapped prose: a word, the line end, a small letter.
    r"|(?<=\n)\s*+(?![a-z])|(?<=[^a-z,]\n)\s*)"
)
_WIDE_STOP = re.compile("[。！？]")
_CLAUSE_END = re.compile(r"\s+")
_RULE_LABELS = "rule|constraint|preference|policy|requirement|important|remember|guideline|restriction"
_LABEL = re.compile(
    rf"(?:(?-i:[A-Z][A-Z _-]{{2,30}})|(?:[\w-]+ )?(?:{_RULE_LABELS}|fact|decision|note|goal|todo|warning|reminder"
    r"|goal state|context|summary|result|conclusion)s?)\s?:\s+",
    re.IGNORECASE,
)
_RULE_LABEL = re.compile(rf"(?:[\w-]+ )?(?:{_RULE_LABELS})s?\s?:\s", re.IGNORECASE)
_RULE_WORDS_TEXT = """
never always must mustn dont don not no only prefer prefers preferred avoid ensure sure forbidden
prohibited allergic allergy allergies vegan vegetarian gluten kosher halal answer reply respond
please should shall stop circumstances required require requires keep remember want wants need needs
least most times toujours jamais réponds répondez immer nie niemals bitte antworte siempre nunca
responde
"""
_RULE_WORDS = frozenset(_RULE_WORDS_TEXT.split())
_VERBS = (
    "use|touch|push|deploy|delete|change|modify|run|send|reveal|execute|share|commit|merge|call|write|answer"
    "|exceed|edit|remove|install|mention|suggest|include|assume|ask|start|make|add|put|store|log|expose|print"
    "|drop|eat|drink|accept|allow|report|reply|respond|speak|skip|disable|enable|overwrite|publish"
    "|upgrade|book|schedule|work|need"
)
_RULE_START = re.compile(
    r"""
    (?:(?:please|also|and|but|ok|okay|so|oh|note|remember|important|one\ more\ thing)[,:;]?\s+)*
        (?:never|always|do\ not|don['’]t|only|avoid|prefer|ensure|make\ sure|stop|no\s+\w+\s+\w+|remember
        |keep\s+\w+)\b
    | (?:toujours|jamais|immer|nie|niemals|siempre|nunca)\b
    """,
    re.VERBOSE,
)
_DEMAND = re.compile(
    r"""
    \W(?:
        (?:must|mustn['’]t|shall\ not|not\ allowed|forbidden|prohibited|no\ more\ than|at\ (?:most|least)\s+\d
        |requires?\ that|is\ required)\b
    | (?:should|can|may|shall)\s+(?:never|not|only|always)\b
    )
    """,
    re.VERBOSE,
)
"""What something has to be or to do: a rule where the user says it, and a line like all others in a pasted document."""
_DIRECTIVE = re.compile(
    rf"""
    \W(?:
      (?:under\ (?:no|any)\ circumstances|from\ now\ on|at\ all\ times)\b
    | you\s+(?:must|mustn['’]t|shall|(?:should|can|may)\s+(?:never|not|only|always))\b
    | please\s+(?:always\s+)?(?:answer|reply|respond|write|speak|use|keep|address|call|format|include)\b
    | (?:answer|reply|respond|write|speak)\s+(?:\w+\s+){{0,3}}in\s+\w+
    | (?:i|we|user|they)(?:['’]d)?\s+(?:(?:would|strongly|really|always|also)\s+)*prefers?\b
    | (?:i|we|user)\s+(?:want|need|expect|require)s?\s+(?:you\s+to|all|every|only|no)\b
    | (?:never|always|don['’]t|do\ not|only)\s+(?:ever\s+)?(?:{_VERBS})\b
    | allerg(?:ic|y|ies)\b | (?:vegan|vegetarian|gluten[- ]free|kosher|halal)\b
    | ne\s+\w+\s+jamais\b | bitte\s+antworte\b | r[ée]pond(?:s|ez)\b | responde\s+(?:siempre|en)\b
    )
    """,
    re.VERBOSE,
)
"""This and what follows is tried on small letters behind a space, and starts with one plain class: so the search leaps
from word to word. A pattern that ignores case, or starts with a boundary, stops at every letter."""
_NO_RULE = re.compile(
    r"\W(?:don['’]t (?:know|think|mind|understand|worry|believe|care|feel|see|you|get|have to|really)\b"
    r"|(?:i|he|she|they|we|it)(?:['’]ve|['’]d| have| had| has)? (?:always|never) "
    r"(?:been|had|seen|thought|knew|heard|felt|got|did|\w+ed)\b"
    r"|can['’]t wait\b|must (?:have|say|admit|feel)\b|(?:that|there) must be\b|not only\b|if only\b"
    r"|(?<=^\W)no (?:problem|worries|way|idea|doubt|thanks|one|need)\b)"
)
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
_FACT_WORDS = frozenset({"my", "our", "called", "named", "call", "i", "we"})
_DATED = re.compile(
    # It starts with one plain class, so that the search leaps from digit to digit.
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
_DOCUMENT_CHARS, _DOCUMENT_DEMANDS = 1500, 3
"""A message that is longer is a pasted text where it holds more demands than this."""
_MOST_DEMANDS = 8
"""The same of any message: nobody lays down as many at once in their own words."""
_LEAD = re.compile(
    r"^(?:(?:hey|hi|hello|wow|yeah|yep|oh|ah|haha|thanks|thank you|great|sure|okay|ok|well|cool|awesome|nice"
    r"|absolutely|definitely|of course|certainly)[,!.]*\s+)+(?=\S)",
    re.IGNORECASE,
)
WORD = re.compile(r"[^\W_]+")
_ASCII_WORDS = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}
"""What ``WORD`` finds in ASCII, four times as fast."""


def sentences(text: str) -> Iterator[str]:
    """The text's sentences and lines, none longer than ``SENTENCE_CHARS``; a very long word is shortened.

    Each is one line, so that none can pose as a line of a summary: whatever ends a line ends it here.
    """
    text = "\n".join(text.splitlines())
    if not text.isascii():
        text = _WIDE_STOP.sub("\\g<0>\n", text)  # Chinese and Japanese put no space after a sentence
    for sentence in _SENTENCE_END.split(text):
        if len(sentence) <= SENTENCE_CHARS:
            if sentence and not sentence.isspace():
                yield " ".join(sentence.split()) if "\n" in sentence else sentence.strip()
        else:
            yield from _clauses(sentence)


def tails(text: str) -> Iterator[str]:
    """What ``sentences`` cuts off words that are longer than a sentence may be: encoded data, minified code."""
    if not text.isascii():
        text = _WIDE_STOP.sub("\\g<0>\n", text)
    for word in text.split():
        if len(word) > SENTENCE_CHARS:
            for start in range(_CLIPPED_CHARS, len(word), SENTENCE_CHARS):
                yield word[start : start + SENTENCE_CHARS]


def words_of(sentence: str) -> tuple[str, ...]:
    """The words of a sentence in small letters, without punctuation."""
    if sentence.isascii():
        return tuple(sentence.translate(_ASCII_WORDS).split())
    return tuple(WORD.findall(sentence.lower()))


def is_rule(sentence: str, words: Sequence[str]) -> bool:
    """Whether the sentence tells what must, must not or should always be done, or a lasting preference."""
    return rule_kind(sentence, words) is not None


RuleKind = Literal["directive", "demand"]
"""What is said to the assistant, and what is said of a thing ("The service must ...")."""


def rule_kind(sentence: str, words: Sequence[str]) -> RuleKind | None:
    """Which kind of rule a sentence is; None where it is none."""
    labelled = _LABEL.match(sentence) if ":" in sentence else None
    if labelled and _RULE_LABEL.match(sentence):
        return "directive"
    if _RULE_WORDS.isdisjoint(words):
        return None
    body = sentence[labelled.end() :] if labelled else sentence
    plain = " " + body.lower()
    directive = _RULE_START.match(plain, 1) or _DIRECTIVE.search(plain)
    if not (directive or _DEMAND.search(plain)) or _NO_RULE.search(plain):
        return None
    return "directive" if directive else "demand"


def is_document(characters: int, demands: int) -> bool:
    """Whether a message is a pasted text, such as a list of requirements, by its length and the demands in it.

    Its demands are what the text is about. What the user lays down for the work is said in a few words, or to somebody.
    """
    return demands > (_DOCUMENT_DEMANDS if characters > _DOCUMENT_CHARS else _MOST_DEMANDS)


# Each pattern is tried only where one of its words is there: most sentences have none.
def is_fact(sentence: str, words: Sequence[str]) -> bool:
    """Whether the speaker says who they are, what is theirs or is called, or names a date or a sum."""
    if not _FACT_WORDS.isdisjoint(words) and _FACT.search(" " + sentence.lower()):
        return True
    return bool(("i" in words and _OWN_NAME.search(" " + sentence)) or _DATED.search(sentence))


def is_decision(sentence: str, words: Sequence[str]) -> bool:
    """Whether something was settled."""
    return not _DECISION_WORDS.isdisjoint(words) and bool(_DECISION.search(" " + sentence.lower()))


def is_error(sentence: str, words: Sequence[str]) -> bool:
    """Whether something went wrong."""
    named = "Error" in sentence or "Exception" in sentence
    return (named or not _ERROR_WORDS.isdisjoint(words)) and bool(_ERROR.search(" " + sentence.lower()))


def is_labelled(sentence: str) -> bool:
    """Whether the speaker marked it: ``DECISION: ...``, ``Note: ...``."""
    return ":" in sentence and bool(_LABEL.match(sentence))


def without_lead(sentence: str) -> str:
    """The sentence without the interjections it opens with."""
    found = _LEAD.match(sentence)
    return sentence[found.end() :] if found else sentence


def _clauses(sentence: str) -> Iterator[str]:
    """A long sentence in pieces, cut at white space; a piece without any is cut short."""
    gathered = ""
    for word in _CLAUSE_END.split(sentence):
        clipped = word if len(word) <= _CLIPPED_CHARS else word[:_CLIPPED_CHARS] + "…"
        if len(gathered) + 1 + len(clipped) > SENTENCE_CHARS:
            yield gathered
            gathered = clipped
        else:
            gathered = f"{gathered} {clipped}" if gathered else clipped
    if gathered.strip():
        yield gathered
