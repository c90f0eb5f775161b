"""Recognizes statements by which a user takes back a rule, such as "Forget the rule about tabs", or changes it.

``ledger`` and ``salience`` use it. A statement takes a rule back only if it names the rule's matter, so "Never mind!"
and "Forget it" take back nothing. The statement then stands as a rule. The rule that it takes back is dropped only if
it names most of it. After a change of mind ("I changed my mind about rounding: ...") the new wish names the rule, too.
Words are compared by their beginnings. English, and plain German, French and Spanish.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from tidemark.core.frozen import frozen
from tidemark.summarizers.sentences import words_of

_TRIGGERS_TEXT = """
forget mind nevermind disregard ignore drop scrap cancel lift remove longer anymore more allowed permitted fine okay ok
vergiss vergesst mehr erlaubt oublie oubliez plus olvida olvide ya instead statt anstatt lieu lugar vez
"""
_TRIGGERS = frozenset(_TRIGGERS_TEXT.split())
_TURNS = frozenset(["change", "changed", "second", "correction", "scratch", "anders", "changé", "cambiado"])
_MINDS_TEXT = "mind minds plan plans thought thoughts correction scratch überlegt avis idea opinión"
_MINDS = frozenset(_MINDS_TEXT.split())
"""A change of mind has one of these words and one of ``_TURNS``."""
_SIGNS = _TRIGGERS | _TURNS
"""A sentence without any of these words takes nothing back."""
_LEAD = r"^(?:(?:actually|ok|okay|so|and|but|please|oh|sorry|well|also|bitte|por\ favor)[,:;]?\s+)*"
_RULES = r"(?:rules?|instructions?|requirements?|restrictions?|constraints?|preferences?)"
_TAKES_BACK = re.compile(
    rf"""
    {_LEAD}(?:forget|never\s*mind|disregard)\s+(?:about\s+)?(?P<forgotten>.+)
    | {_LEAD}(?:ignore|drop|scrap|cancel|lift|remove)\s+(?:the|that|my|our|this)\s+(?:\w+\s+){{0,2}}?{_RULES}\b
        (?P<lifted>.+)
    | \b(?:you|we|i)\s+(?:do\s+)?no\s+longer\s+(?:need|have|want)\s+(?P<needless>.+)
    | \b(?:do\ not|don['\u2019]t|needn['\u2019]t)\s+(?P<ended>.+?)\s+(?:any\s?more|any\s+longer)\b
    | {_LEAD}(?P<unneeded>.+?)\s+(?:is|are)\s+no\s+longer\s+(?:needed|necessary|required|forbidden|prohibited|wanted)
    | {_LEAD}(?:from\s+now\s+on|use|choose|take|write|deploy|call|ab\s+jetzt|désormais|a\s+partir\s+de\s+ahora|usa)\b.*?
        \s(?:instead\s+of|statt|anstatt|au\s+lieu\s+d[e'\u2019]|en\s+(?:lugar|vez)\s+de)\s*(?P<replaced>.+)
    | {_LEAD}vergiss(?:t)?\s+(?:bitte\s+)?(?P<vergessen>.+)
    | \b(?:musst|brauchst|sollst|müssen|brauchen)\s+(?P<unnötig>.+?)\s+nicht\s+mehr\b
    | {_LEAD}oublie[zr]?\s+(?P<oublié>.+)
    | \b(?:n['\u2019](?:as|avez|avons))\s+plus\s+besoin\s+(?:de\s+|d['\u2019])(?P<inutile>.+)
    | {_LEAD}olvid[ae]\s+(?P<olvidado>.+)
    | \bya\s+no\s+(?:hace\s+falta|tienes\s+que|necesitas|es\s+necesario)\s+(?P<innecesario>.+)
    """,
    re.VERBOSE,
)
_ALLOWS = re.compile(
    rf"""
    {_LEAD}(?P<allowed>.+?)\s+(?:is|are)\s+(?:(?:now\s+|again\s+)(?:allowed|permitted|fine|ok|okay)\b
        |(?:allowed|permitted|fine|ok|okay)\s+(?:now|again|from\s+now\s+on)\b)
    | {_LEAD}(?P<erlaubt>.+?)\s+ist\s+(?:jetzt|nun|wieder|ab\ jetzt)\s+erlaubt
    """,
    re.VERBOSE,
)
_CHANGES = re.compile(
    r"""
    \b(?:chang(?:e|ed)\s+(?:my|our)\s+minds?|(?:a\s+)?change\s+of\s+(?:plans?|mind)|on\s+second\s+thoughts?
      |correction(?=\s*:)|scratch\s+that(?=\s*[,:;.]))
      (?:\s+(?:about|on|for|of|with|regarding)\s+(?P<changed>[^,;:.!?()\u2013\u2014]+))?
    | \b(?:(?:es\s+mir|mir\s+das)\s+anders\s+überlegt)(?:\s+(?:bei|mit|zu)\s+(?P<geändert>[^,;:.!?()]+))?
    | \bchangé\s+d['\u2019]avis(?:\s+(?:sur|pour)\s+(?P<changé>[^,;:.!?()]+))?
    | \bcambiado\s+de\s+(?:idea|opinión)(?:\s+(?:sobre|con)\s+(?P<cambiado>[^,;:.!?()]+))?
    """,
    re.VERBOSE,
)
"""Says that what follows takes the place of an earlier rule on its matter, which it may name."""
_DENIALS = frozenset(["not", "never", "t", "nicht", "pas", "nunca"])
"""Words before it that turn it round: "I won't change my mind"."""
_CLAUSE_END = re.compile(
    r"[,;:.!?()\u2013\u2014]|\s-\s|\s(?:but|instead|from now|use|and use|sondern|ab jetzt|mais|sino)\b"
)
"""What follows is the new rule, if there is one."""
_GENERIC_TEXT = """
the a an that this these those my our your his her its it about on of for to in with by from at as and or any anything
all rule rules instruction instructions requirement requirements restriction preference thing part what i we you said
told asked need needs have has want wants must should would do does be being been use using used always never only
please more longer now again every each no not don answer answers reply replies respond speak write writing keep
make sure die der das den dem ein eine über von mit auf in zu bei regel immer nie niemals bitte nicht mehr und
le la les un une des du de d l à en sur règle toujours jamais ne pas plus et tout
el los las una unos que con regla siempre nunca no más y lo
"""
_GENERIC = frozenset(_GENERIC_TEXT.split())
_STEM, _LEAST_LETTERS = 4, 3
_MOST_CHARS = 240
_NAMED, _NAMED_BY_LEAVE = 0.5, 1.0
"""The part of a rule that must be named to drop it, by taking it back and by allowing something."""
_LEAST_SHARED = 2
"""Words that a rule and a change share, if the change does not say what it is about."""
_SAFETY = ("safety", "security", "danger", "warning")
"""The labels of rules that are never dropped."""


@frozen
class Revocation:
    """What a statement takes back."""

    matter: frozenset[str]
    """The words that name it; empty for a change of mind that names nothing."""
    least_named: float
    """The part of a rule's matter from which the rule is dropped."""
    words: frozenset[str] = frozenset()
    """All words of a change of mind: its new wish names the rule, too."""


def may_revoke(words: Collection[str]) -> bool:
    """Return whether a sentence has a word by which rules are taken back; most have none."""
    return not _TRIGGERS.isdisjoint(words)


def revocation_of(sentence: str, words: Collection[str]) -> Revocation | None:
    """Return what a sentence takes back; None if it takes back nothing.

    :param words: the sentence's words, in small letters
    """
    if _SIGNS.isdisjoint(words) or len(sentence) > _MOST_CHARS:
        return None
    is_trigger, is_change = may_revoke(words), not (_MINDS.isdisjoint(words) or _TURNS.isdisjoint(words))
    plain = " ".join(sentence.lower().split())  # between long runs of spaces, the patterns would try every place
    for pattern, least_named in ((_TAKES_BACK, _NAMED), (_ALLOWS, _NAMED_BY_LEAVE)) if is_trigger else ():
        if match := pattern.search(plain):
            text = next(group for group in match.groups() if group is not None)
            matter = _matter(words_of(_CLAUSE_END.split(text, maxsplit=1)[0]))
            return Revocation(matter, least_named) if matter else None
    return _change_of(plain, words) if is_change else None


def _change_of(plain: str, words: Collection[str]) -> Revocation | None:
    """Return what a change of mind takes back."""
    match = _CHANGES.search(plain)
    if match is None or plain.endswith("?") or not _DENIALS.isdisjoint(words_of(plain[: match.start()])):
        return None
    topic = next((group for group in match.groups() if group is not None), "")
    return Revocation(_matter(words_of(topic)), _NAMED, _matter(words))


def related_rules(rules: Sequence[str], revocation: Revocation) -> Iterator[tuple[int, bool]]:
    """Yield the places of the rules that a revocation is about, and whether it takes them back whole."""
    matter, words = revocation.matter, revocation.words or revocation.matter
    for place, rule in enumerate(rules):
        own = _matter(words_of(rule))
        if not all(_has_form(own, word) for word in matter):
            continue
        shared = sum(_has_form(words, other) for other in own)
        is_whole = shared >= revocation.least_named * len(own)
        if matter or (is_whole and shared >= _LEAST_SHARED):
            yield place, is_whole and not rule.lower().startswith(_SAFETY)


def _matter(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in words if word not in _GENERIC and (len(word) >= _LEAST_LETTERS or word.isdigit()))


def _has_form(words: Collection[str], other: str) -> bool:
    """Return whether one of some words is a form of another word."""
    return any(word[0] == other[0] and _is_alike(word, other) for word in words)


def _is_alike(word: str, other: str) -> bool:
    """Return whether two words are forms of one: "pushing" and "push", "tests" and "testing"."""
    letters = min(len(word), len(other), _STEM + 1)
    return word == other or (letters >= _STEM and word[:letters] == other[:letters])
