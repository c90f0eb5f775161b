"""Recognizes rules: what must, must not or should always be done, and lasting preferences.

The words are English, and the most common ones of French, German, Italian, Portuguese and Spanish; rules in Chinese,
Japanese and Russian are recognized by ``rule_scripts``. A rule that is missed remains an ordinary sentence, and a
sentence wrongly taken for a rule only costs its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from proxy.core.reading import RuleKind
from proxy.summarizers.idioms import without_idioms
from proxy.summarizers.labels import LABEL, RULE_LABEL
from proxy.summarizers.rule_scripts import is_foreign_rule

_RULE_WORDS_TEXT = """
never always must mustn dont don not no only prefer prefers preferred avoid ensure sure forbidden
prohibited allergic allergy allergies vegan vegetarian gluten kosher halal answer reply respond
please should shall stop circumstances required require requires keep remember want wants need needs
least most times toujours jamais réponds répondez immer nie niemals bitte antworte siempre nunca
responde sempre mai non não rispondi responda
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
    | (?:utilise|écri[st]|appelle|garde|vérifie|ajoute|demande|exécute|lance)(?:z)?\s+(?:\w+\s+){0,2}toujours\b
    | (?:usa|utilizza|scrivi|chiama|mantieni|chiedi|aggiungi|esegui|controlla|verifica)(?:te)?\s+(?:\w+\s+){0,2}sempre\b
    | non\s+(?:usare|toccare|modificare|cancellare|eliminare|inviare|aggiungere|rimuovere|eseguire|installare
        |condividere|rivelare|scrivere|chiamare|cambiare)\b | non\s+\w+[aei]re\s+mai\b | mai\s+\w+[aei]re\b
    | (?:use|utilize|escreva|chame|mantenha|pergunte|adicione|execute|verifique)\s+(?:\w+\s+){0,2}sempre\b
    | (?:nunca|não)\s+(?:use|toque|altere|modifique|apague|exclua|envie|adicione|remova|execute|instale|compartilhe
        |revele|escreva|mude)\b | sempre\s+(?:use|responda|escreva|mantenha|pergunte|execute|verifique|peça)\b
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
    | rispond(?:i|ete)\s+(?:sempre\s+)?(?:solo\s+)?in\b | responda\s+(?:sempre\s+)?(?:só\s+)?em\b
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
_DOCUMENT_CHARS, _DOCUMENT_DEMANDS = 1500, 3
"""A message of more characters is a pasted text if it has more demands than this."""
_MOST_DEMANDS = 8
"""A message of any length is a pasted text if it has more demands. Nobody writes so many at once in their own words."""


def is_rule(sentence: str, words: Collection[str]) -> bool:
    """Return whether a sentence says what must, must not or should always be done, or a lasting preference."""
    return rule_kind(sentence, words) is not None


def rule_kind(sentence: str, words: Collection[str]) -> RuleKind | None:
    """Return the kind of rule that a sentence is; None where it is no rule."""
    label = LABEL.match(sentence) if ":" in sentence else None
    if label and RULE_LABEL.match(sentence):
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
