"""Recognizes sentences worth keeping by their wording: rules, facts, decisions and errors.

``ledger`` and ``salience`` use it. Patterns are matched against single sentences of bounded length, so that no text
makes them slow. The words are English, and for rules also the most common ones of French, German and Spanish; rules in
Chinese, Japanese and Russian are recognized by ``rule_scripts``. A rule that is missed remains an ordinary sentence,
and a sentence wrongly taken for a rule only costs its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal

from proxy.summarizers.idioms import without_idioms
from proxy.summarizers.rule_scripts import is_foreign_rule

SENTENCE_CHARS = 320
"""The most characters of a sentence, about 80 tokens."""
_CLIPPED_CHARS = SENTENCE_CHARS // 2
"""Characters that stay of a longer word where a sentence is cut."""
_MONTH = "Jan|Feb|M[aä]r|Apr|Ma[ij]|Jun|Jul|Aug|Sep|O[ck]t|Nov|De[cz]"
_ARTICLE = "[Dd](?:e[rmns]|as|ie)|[Vv]om|[Zz]u[mr]"
_NO_ORDINAL = (
    # Neither "am 16. Juli" and "16. července" nor "der 2. Weltkrieg" and "im 10. Stock".
    rf"(?!{_MONTH}|[^\W\dA-ZÀ-Þ])(?<!\b(?:{_ARTICLE})\s\d\.[ \t])(?<!\b(?:{_ARTICLE})\s\d\d\.[ \t])"
    r"(?<!\b[Ii]m\s\d\.[ \t])(?<!\b[Ii]m\s\d\d\.[ \t])"
)
"""A place after a number and a full stop at which the number is no ordinal one."""
_SENTENCE_END = re.compile(
    # It starts with a simple class, so that the search skips from white space to white space.
    r"[ \t\n](?:"
    r"(?<=[.!?…][ \t])(?<!\b[A-Z]\.[ \t])(?<!\b(?:Mr|Ms|Dr|vs|St)\.[ \t])(?<!\bMrs\.[ \t])(?<!(?:e\.g|i\.e)\.[ \t])"
    r"(?<!^\d\.[ \t])(?<!\n\d\.[ \t])(?<!\n\d\d\.[ \t])[ \t]*"
    rf"(?:(?<![ \t]\d\.[ \t])(?<![ \t]\d\d\.[ \t])|{_NO_ORDINAL})"
    # A line end ends a sentence, except in hard-wrapped prose: a word, the line end, a lower-case letter.
    r"|(?<=\n)\s*+(?![a-z])|(?<=[^a-z,]\n)\s*)"
)
_WIDE_STOP = re.compile("[。！？]")
_THAI_GOES_ON = "แต่|ยกเว้น|ถ้า|หาก|เมื่อ|จน|เพราะ|ก็|และ|หรือ|เวลา|วัน|ที่|ใน|กับ|จาก|โดย|ของ|เพื่อ|ให้|ว่า|ซึ่ง|แล้ว|ถึง|ตั้งแต่|นะ|ครับ|ค่ะ"
_THAI_STOP = re.compile(rf" (?<=[ก-๙] )(?!(?:{_THAI_GOES_ON}))(?=[ก-๙])")
"""Thai ends a sentence with a blank; a conjunction, a preposition or a particle goes on with it."""
_THAI_CONDITION = re.compile("ถ้า|หาก|เมื่อ|ก่อน|หลัง|ตอน")
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
    | (?:toujours|jamais|ne\s+jamais|immer|nie|niemals|siempre|nunca)\b
    | n['’](?:utilis|ajout|appel|envoi|écri|effac|oubli|exécut|install|modifi)\w*\s+jamais\b
    | (?:antworte|benutze|verwende|nutze|schreib|sprich|lösche|ändere|frag|mach|gib|nimm|führe|zeig|nenn|halte|starte
        |erwähne|installiere)(?:e|en)?(?:\s+sie)?\s+(?:\w+\s+){0,2}(?:immer|nie|niemals|stets)\b
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
"""Says what something has to be or do. A rule in the user's own words, and an ordinary line in a pasted document."""
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
    | (?<!\bje\W)(?<!\btu\W)(?<!\bil\W)(?<!\bon\W)ne\s+\w+\s+jamais\b
    | bitte\s+antworte\b | r[ée]pond(?:s|ez)\b | responde\s+(?:siempre|en)\b
    )
    """,
    re.VERBOSE,
)
"""A rule that addresses the assistant.

This pattern and the next ones are matched against lower-case text after a space, and start with a simple class. So the
search skips from word to word; a pattern that ignores case, or starts with a boundary, stops at every letter."""
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
_SIGNS = _FACT_WORDS | _DECISION_WORDS | _ERROR_WORDS
_DOCUMENT_CHARS, _DOCUMENT_DEMANDS = 1500, 3
"""A message of more characters is a pasted text if it has more demands than this."""
_MOST_DEMANDS = 8
"""A message of any length is a pasted text if it has more demands. Nobody writes so many at once in their own words."""
_LEAD = re.compile(
    r"^(?:(?:hey|hi|hello|wow|yeah|yep|oh|ah|haha|thanks|thank you|great|sure|okay|ok|well|cool|awesome|nice"
    r"|absolutely|definitely|of course|certainly)[,!.]*\s+)+(?=\S)",
    re.IGNORECASE,
)
WORD = re.compile(r"[^\W_]+")
_ASCII_WORDS = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(256)).encode("latin-1")
"""Translates ASCII text, as bytes, into the words that ``WORD`` finds, six times as fast."""


def sentences(text: str) -> Iterator[str]:
    """Yield the text's sentences and lines, none longer than ``SENTENCE_CHARS``; a very long word is shortened.

    Each is one line, so that none can imitate a line of a summary: every kind of line end splits the text.
    """
    text = "\n".join(text.splitlines())
    if not text.isascii():
        text = _WIDE_STOP.sub("\\g<0>\n", text)  # Chinese and Japanese put no space after a sentence
        if not _THAI_CONDITION.search(text):
            text = _THAI_STOP.sub("\n", text)
    for sentence in _SENTENCE_END.split(text):
        if len(sentence) <= SENTENCE_CHARS:
            if sentence and not sentence.isspace():
                yield " ".join(sentence.split()) if "\n" in sentence else sentence.strip()
        else:
            yield from _clauses(sentence)


def tails(text: str) -> Iterator[str]:
    """Yield what ``sentences`` cuts off from very long words, such as encoded data and minified code."""
    if not text.isascii():
        text = _WIDE_STOP.sub("\\g<0>\n", text)
    for word in text.split():
        if len(word) > SENTENCE_CHARS:
            for start in range(_CLIPPED_CHARS, len(word), SENTENCE_CHARS):
                yield word[start : start + SENTENCE_CHARS]


def words_of(sentence: str) -> tuple[str, ...]:
    """Return the words of a sentence in lower case, without punctuation."""
    if sentence.isascii():
        return tuple(sentence.encode().translate(_ASCII_WORDS).decode().split())
    return tuple(WORD.findall(sentence.lower()))


def is_rule(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence says what must, must not or should always be done, or a lasting preference."""
    return rule_kind(sentence, words) is not None


RuleKind = Literal["directive", "demand"]
"""A directive addresses the assistant; a demand is about a thing ("The service must ...")."""


def rule_kind(sentence: str, words: Collection[str]) -> RuleKind | None:
    """Return the kind of rule that a sentence is; None where it is no rule."""
    label = _LABEL.match(sentence) if ":" in sentence else None
    if label and _RULE_LABEL.match(sentence):
        return "directive"
    if not sentence.isascii() and is_foreign_rule(sentence):
        return "directive"
    if _RULE_WORDS.isdisjoint(words):
        return None
    body = sentence[label.end() :] if label else sentence
    plain = " " + body.lower()
    kind = _kind_of(plain)
    if kind is None or _NO_RULE.search(literal := without_idioms(plain)):
        return None
    return kind if literal == plain else _kind_of(literal)


def _kind_of(plain: str) -> RuleKind | None:
    """Return the kind of rule by its wording alone.

    :param plain: lower-case text after a space
    """
    if _RULE_START.match(plain, 1) or _DIRECTIVE.search(plain):
        return "directive"
    return "demand" if _DEMAND.search(plain) else None


def is_document(characters: int, demands: int) -> bool:
    """Return whether a message is a pasted text, such as a list of requirements.

    The demands of a pasted text are its content. A user's own rules are few, or address the assistant.

    :param characters: the length of the message
    :param demands: how many demands it has
    """
    return demands > (_DOCUMENT_DEMANDS if characters > _DOCUMENT_CHARS else _MOST_DEMANDS)


def signs_of(words: Collection[str]) -> frozenset[str]:
    """Return those of a sentence's words by which facts, decisions and errors are recognized; they do for its words."""
    return _SIGNS.intersection(words)


# Each pattern is matched only where the sentence has one of its words; most have none.
def is_fact(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence says who the speaker is, names something of theirs, or has a date or a sum.

    :param words: all of its words, or those that ``signs_of`` returns, as for ``is_decision`` and ``is_error``
    """
    if not _FACT_WORDS.isdisjoint(words) and _FACT.search(" " + sentence.lower()):
        return True
    return bool(("i" in words and _OWN_NAME.search(" " + sentence)) or _DATED.search(sentence))


def is_decision(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence reports a decision."""
    return not _DECISION_WORDS.isdisjoint(words) and bool(_DECISION.search(" " + sentence.lower()))


def is_error(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence reports an error."""
    has_name = "Error" in sentence or "Exception" in sentence
    return (has_name or not _ERROR_WORDS.isdisjoint(words)) and bool(_ERROR.search(" " + sentence.lower()))


def is_labelled(sentence: str) -> bool:
    """Return whether the speaker labelled a sentence: ``DECISION: ...``, ``Note: ...``."""
    return ":" in sentence and bool(_LABEL.match(sentence))


def label_of(sentence: str) -> str:
    """Return the label with which a sentence begins, with its colon; empty where it has none."""
    match = _LABEL.match(sentence + " ") if ":" in sentence else None
    return match[0].rstrip() if match else ""


def without_lead(sentence: str) -> str:
    """Return the sentence without its opening interjections."""
    match = _LEAD.match(sentence)
    return sentence[match.end() :] if match else sentence


def _clauses(sentence: str) -> Iterator[str]:
    """Yield a long sentence in pieces, split at white space; a piece without any is cut short."""
    clause = ""
    for word in _CLAUSE_END.split(sentence):
        clipped = word if len(word) <= _CLIPPED_CHARS else word[:_CLIPPED_CHARS] + "…"
        if len(clause) + 1 + len(clipped) > SENTENCE_CHARS:
            yield clause
            clause = clipped
        else:
            clause = f"{clause} {clipped}" if clause else clipped
    if clause.strip():
        yield clause
