"""Recognizes which of the user's rules a newer message replaces, in seven languages.

``ledger`` asks it, beside ``revoking`` and ``superseding``. A sentence replaces a rule of an earlier message if it
takes back what the rule names ("Scrap what I said about email."), if it says that something changes and is a rule on
the same matter, or allows what the rule bans, or if it is such a rule with another amount ("at most 5 minutes").
Otherwise both stand: a rule that is lost costs more than one that is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from proxy.summarizers.labels import is_safety
from proxy.summarizers.rule_scripts import plain_arabic
from proxy.summarizers.sentences import words_of

_TAKES_BACK = re.compile(
    r"""
    \b(?:scrap|forget|ignore|drop|take\ back|changed\ my\ mind)\s(?:what\ i\ (?:said|told\ you|wrote)\s(?:about|on)
        |the\ (?:rule|thing|part)\ (?:about|on|with)|about)\s(?P<en>.+)
    | \b(?:vergiss|vergessen\ sie|streich|streichen\ sie)\s(?:bitte\s)?(?:das\ mit|die\ (?:regel|sache)\ mit|die\ regel)
        \s(?P<de>.+) | \bstatt\s(?P<statt>\w+)
    | \b(?:on|nous|j['’]|je)\s?(?:abandonn|annul|retir|lèv)\w+\s(?P<fr>.+) | \boubli(?:e
        |ez)\s(?:ce\ que\ j['’]ai\ dit\ sur
        |la\ règle\ (?:sur|des?|du)|l['’]histoire\ (?:de|du))\s(?P<fr2>.+) | \bau\ lieu\ d(?:e\s|u\s|es\s
            |['’])(?P<lieu>\w+)
    | \b(?:retiro|olvida|olvídate\ de|anulo|quito)\s(?:lo\ que\ (?:te\ )?dije\ (?:de|sobre)|lo\ de)(?:l\b)?\s(?P<es>.+)
    | \b(?:esquece|esqueça|retiro|anulo|cancela)\s(?:o\ que\ (?:eu\ )?(?:disse|falei)\ (?:de|sobre)|aquilo\ d[eoa]
        |a\ regra\ d[eoa]|isso\ d[eoa]|o\ d[eoa])\s(?P<pt>.+)
    | (?:what\ i\ said\ about\ |the\ rule\ (?:about|on)\ |das\ mit\ |die\ regel\ (?:mit|zu)\ |lo\ de\
        |la\ règle\ (?:sur|du|des?)\ )
        (?P<gone>[^,;:.]{2,60}?)\s(?:no\ longer\ (?:applies|holds|counts)|gilt\ nicht\ mehr|hat\ sich\ erledigt
            |ist\ hinfällig
        |ne\ (?:tient|vaut)\ plus|ya\ no\ vale|não\ vale\ mais)
    | (?:الغ\w*|انس\w*|تراجعت\ عن|اسحب)\s(?:ما\ قلته\ عن|قاعدة|شرط)\s(?P<ar>.+)
    """,
    re.VERBOSE,
)
_TAKES_BACK_CHINESE = re.compile(
    r"(?P<zh>[^，。；：]{2,20}?)(?:那条|这条|的规定|的要求)?(?:作废|取消了?|不算数?了?|收回)"
)
_ALLOWS = re.compile(
    r"\b(?:(?:you|we) (?:can|may)|feel free|(?:is|are) (?:fine|ok|okay|allowed)|d[uü]r?f(?:st|en)|können sie"
    r"|on peut|tu peux"
    r"|vous pouvez|puedes|podemos|podéis|se puede|pode|podes|podem)\b|可以|يمكنك|مسموح"
)
_CHANGES = re.compile(
    r"""
    \b(?:from\ now\ on|instead|scrap|scratch|forget|no\ longer|any\ ?more|take\ (?:that|it)\ back|chang(?:ed?
        |ing)\ my\ mind
        |change\ of\ plans?|on\ second\ thoughts?|after\ all|correct(?:ion|ing)|got\ wrong|supersedes?|replaces?
        |goes\ (?:up|down)|rais(?:e|ed|ing)|relax(?:ed|ing)?|lift(?:ed|ing)?|new\ (?:rule|limit|budget|cap|maximum)
        |switch|make\ (?:that|it)|let['’]s\ say|revis\w+|i\ (?:said|told\ you|asked\ you)
    | ab\ (?:sofort|jetzt)|stattdessen|statt|neue\ (?:ansage|regel|grenze)|korrigier\w+|korrektur|nicht\ mehr
        |vergiss|vorhin
        |vergessen\ sie|streich\w*|geändert|ändert|umentschieden|künftig
    | finalement|désormais|dorénavant|corrige\w*|correction|oubli(?:e|ez)|abandonn\w+|annul\w+|retire\w*|plutôt
        |à\ la\ place|chang(?:é|e)\ d['’]avis|tout\ compte\ fait|réflexion\ faite|rectifie
    | al\ final|finalmente|retiro|olvida\w*|(?:a\ partir\ de|desde)\ ahora|en\ vez\ de|en\ lugar\ de|mejor|cambi[oéa]\w*
        |rectific\w+|corrijo|corrección|ya\ no|pensándolo|anulo|dije|sub(?:imos|e|o)
    | afinal|esque[cç]\w+|a\ partir\ de\ agora|em\ vez\ de|ao\ invés|melhor|mud(?:ei|ou|amos)|corrig\w+|correção|já\ não
        |pensando\ bem|pensei\ melhor|aument\w+|em\ diante|pra\ frente)\b
    | 作废|算了|改成|改为|改一下|取消|不用了|以后|收回|更正|调整|放宽|提高|我说过|前面说|之前说|刚才说|从现在
    | من\ الان\ فصاعدا|بدلا|\bالغ|رايي|تراجع|لم\ (?:يعد|تعد)|بعد\ اليوم|عدلت|تصحيح
    """,
    re.VERBOSE,
)
"""Says that something is no longer as it was, here or in the next sentences."""
_CHANGES_HERE = re.compile(
    r"^(?:ok|okay|fine|alright|gut|bon|vale|tá|好)\b|\b(?:actually|again|now|but only|but everything else|doch"
    r"|jetzt|wieder"
    r"|neu|maintenant|en fait|ahora|agora)\b|, just\b|还是|\bالان\b"
)
_RESETS = re.compile(r"\b(?:make (?:it|that)|let['’]s say|sagen wir|disons|digamos|que sean|que sejam)\b")
_CHANGE_WORDS_TEXT = """
instead scrap scratch forget longer anymore supersedes supersede replaces replace goes raise raised raising relax
relaxed relaxing lift lifted lifting switch revised revise correction correcting sofort jetzt stattdessen statt
korrigieren korrigiere korrigiert korrektur vergiss vergessen streich streichen geändert ändert umentschieden vorhin
künftig finalement désormais dorénavant corrige corrigez corrigeons oublie oubliez abandonne abandonnons abandonnez
annule annulons annulez retire retirons plutôt rectifie avis réflexion compte finalmente retiro olvida olvídate ahora
vez mejor cambio cambios cambié cambia cambiado cambiamos rectifico corrijo corrección pensándolo anulo dije subimos
sube subo afinal esquece esqueça agora invés melhor mudei mudou mudamos corrigindo corrigi correção pensando pensei
aumenta aumentou diante frente
"""
_CHANGE_WORDS = frozenset(_CHANGE_WORDS_TEXT.split())
"""Words of which ``_CHANGES`` needs one, or one of the next; most sentences have none."""
_COMMON_TEXT = (
    "now more back mind plan plans thought thoughts all wrong new make let said told asked neue mehr place final"
)
_COMMON_WORDS = frozenset(f"{_COMMON_TEXT} lugar ya já".split())
_PHRASES_TEXT = (
    "now on|any more|that back|it back|my mind|of plan|second thought|after all|got wrong|new |"
    "make it|make that|let's say|let’s say|i said|i told|i asked|neue |nicht mehr|la place|al final|"
    "lugar de|ya no|já não"
)
_CHANGE_PHRASES = tuple(_PHRASES_TEXT.split("|"))
_OTHER_WORDS_TEXT = """
ignore drop applies holds counts cross crossed strike make let may can free fine okay allowed
darf dürfen darfst kann kannst können erledigt gilt hinfällig ersetzt sagen
peut peux pouvez supprime supprimez remplace disons lieu tient vaut
puedes puede podemos quito vale elimina reemplaza digamos sean
pode podes podem cancela substitui risque sejam
"""
_OTHER_WORDS = _CHANGE_WORDS | frozenset(_OTHER_WORDS_TEXT.split())
"""Words of which the other patterns need one."""
_STEM = 5
_OTHER_SCRIPT = re.compile("[\u0600-\u06ff\u4e00-\u9fff]")
_CONDITION = re.compile(r"(?:if|unless|wenn|falls|si|se|caso|如果|要是|اذا|لو)\b|如果|要是")
_BAN = re.compile(
    r"\b(?:never|don['’]t|do not|must not|no|not|niemals|nie|keine?n?|ne|pas|jamais|no|nunca|nada|não|لا)\b|不|别|勿|禁"
)
_CLAUSE_END = re.compile(r"[,;:.!?)](?=\s|\Z)|[(،؛，。；：]|\s[-–]\s")
_LABEL = re.compile(r"[^\W\d]+(?:\s[^\W\d]+){0,2}\s?[:：]\s*|(?:另外|还有|对了|而且|所以)[，：]?\s*")
_SECTION = re.compile(r"(?<!\d)[a-z]{0,6}-?\d++(?:\.\d++)++")
_STRIKES = re.compile(
    r"\b(?:cross(?:ed)? out|strike|supersedes?|replaces?|ignore|drop|forget|scrap|streich\w*|ersetzt|supprim\w+"
    r"|remplac\w+"
    r"|elimin\w+|anul\w+|reemplaz\w+|substitu\w+|risqu\w+)\b|删除|删掉|作废|取代|替换|احذف"
)
_AMOUNT = re.compile(r"(?P<sign>[€$£¥])?\s?(?P<number>\d[\d.,]*)\s?(?P<unit>[^\W\d]{1,20}|[%€$£¥])?")
_GENERIC_TEXT = """
the a an that this it its in on of for to with by from at as and or any anything everything all every each always never
only please not no do don don't be is are was have has had must should may can cannot could would will shall i you we
me my your our us them more than less most least so then now again still just use using make give keep go come say said
up out one two like ever also actually okay ok like when whenever what which who else under about please larger
der die das den dem des ein eine einen im in ins am an auf zu zur zum von mit für und oder nur nicht kein keine immer
nie niemals bitte alles alle soll darf dürfen muss müssen sein bleiben betragen dauern liegen höchstens maximal
mindestens neue
le la les l un une des du de d et ou en au aux à pour avec sur dans doit doivent ne pas jamais toujours rester être plus
donc est sont tout toute que qui
el la los las lo un una unos de del en y o a al por para con que no nunca siempre nada debe deben tiene tienen ser más
favor solo sólo mi es son como máximo
o a os as um uma de do da dos das em no na e ou para por com que não nunca sempre deve devem tem têm ser mais favor só é
في من على إلى الى عن و ان لا يجب كل ما
"""
_GENERIC = frozenset(_GENERIC_TEXT.split())
_ALIKE = 0.6
"""The part of a rule's words from which a newer one that changes something says the same with another value."""
_ACCENTS = str.maketrans("áàâãäéèêëíìîïóòôõöúùûüç", "aaaaaeeeeiiiiooooouuuuc")
_NUMBER_WORDS = (
    "two|zwei|deux|dos|dois|duas",
    "three|drei|trois|tres|três",
    "four|vier|quatre|cuatro|quatro",
    "five|fünf|cinq|cinco",
    "six|sechs|seis",
    "seven|sieben|sept|siete|sete",
    "eight|acht|huit|ocho|oito",
    "nine|neun|neuf|nueve|nove",
    "ten|zehn|dix|diez|dez",
)
_NUMBERS = {word: str(number) for number, words in enumerate(_NUMBER_WORDS, 2) for word in words.split("|")}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBERS)})\b")
_MOST_CHARS = 320
_WORD = re.compile(r"[^\W_]+(?:[-_.][^\W_]+)*")
_CHINESE = re.compile("[\u4e00-\u9fff]{2,}")
_CHINESE_GENERIC = re.compile("不要|不得|不能|不许|不准|别|必须|一律|禁止|以后|从现在起|请|只能|可以|最多|至少|一定要?")
_CHINESE_AMOUNT = re.compile("(?<!\\d)\\d++[\u4e00-\u9fff]{1,2}")
_COMMAND = re.compile(
    r"\b(?:never|always|don['’]t|do not|niemals|nie|immer|jamais|toujours|nunca|siempre|sempre|não|no|لا)\s(\w+)"
)


def may_replace(sentence: str, words: Sequence[str]) -> bool:
    """Return whether a sentence that is no rule may replace one, by its words.

    :param words: its words in lower case
    """
    return not _OTHER_WORDS.isdisjoint(words) or (not sentence.isascii() and bool(_OTHER_SCRIPT.search(sentence)))


def says_change(sentence: str, words: Sequence[str]) -> bool:
    """Return whether a sentence says that something changes.

    :param words: its words in lower case
    """
    may_change = not _CHANGE_WORDS.isdisjoint(words) or (
        not sentence.isascii() and bool(_OTHER_SCRIPT.search(sentence))
    )
    if not may_change and _COMMON_WORDS.isdisjoint(words):
        return False
    plain = sentence.lower()
    may_change = may_change or any(map(plain.__contains__, _CHANGE_PHRASES))
    return may_change and bool(_CHANGES.search(plain_arabic(plain)))


class _Rule(NamedTuple):
    """What a rule says."""

    first: frozenset[str]
    """What its first clause names, without what is commanded."""
    words: frozenset[str]
    """All words of its first clause."""
    matter: frozenset[str]
    amounts: Mapping[str, str]
    is_ban: bool


class _Statement(NamedTuple):
    """What a later sentence says."""

    matter: frozenset[str]
    words: frozenset[str]
    objects: frozenset[str]
    """What it takes back."""
    sections: frozenset[str]
    """The numbers of the sections that it strikes out."""
    amounts: Mapping[str, str]
    is_ban: bool
    is_rule: bool
    is_leave: bool
    is_change: bool
    """Whether it, or a sentence just before it, says that something changes."""
    is_turn: bool
    """Whether it does so itself, in words that mean nothing else."""


def replaced_rules(rules: Sequence[str], statement: str, *, is_rule: bool, is_change: bool) -> list[str]:
    """Return the rules of earlier messages that a sentence of the user replaces.

    :param is_rule: whether the sentence is a rule itself
    :param is_change: whether a sentence just before it says that something changes
    """
    plain = statement.lower()
    if len(statement) > _MOST_CHARS or plain.endswith(("?", "？", "؟")) or _CONDITION.match(plain):
        return []
    is_turn = says_change(plain, words_of(plain))
    is_change = is_change or is_turn or bool(_CHANGES_HERE.search(plain))
    is_leave = is_change and bool(_ALLOWS.search(plain))
    is_rule = is_rule or bool(_RESETS.search(plain))
    objects = _object(plain)
    sections = frozenset(_SECTION.findall(plain)) if _STRIKES.search(plain) else frozenset()
    if not (is_rule or is_turn or is_leave or objects or sections):
        return []
    newer = _Statement(
        _matter(plain),
        frozenset(_WORD.findall(plain)),
        objects,
        sections,
        _amounts(plain),
        bool(_BAN.search(plain)),
        is_rule,
        is_leave,
        is_change,
        is_turn,
    )
    return [rule for rule in rules if rule != statement and not is_safety(rule) and _replaces(_read(rule), newer)]


def _replaces(rule: _Rule, newer: _Statement) -> bool:
    if (newer.objects and newer.objects <= rule.matter) or not newer.sections.isdisjoint(rule.words):
        return True
    shared = rule.first & newer.matter
    if not shared:
        return False
    if (
        rule.is_ban
        and shared == rule.first
        and (newer.is_leave or (newer.is_turn and not newer.is_ban and len(shared) > 1))
    ):
        return True
    is_same = 2 * len(shared) > len(rule.first)
    units = {unit for unit, number in newer.amounts.items() if rule.amounts.get(unit, number) != number}
    if units and (
        (newer.is_rule and (is_same or newer.is_change)) or (newer.is_turn and (is_same or not shared <= units))
    ):
        return True
    if len(shared) > 1 and (
        (newer.is_rule and shared == rule.first) or (newer.is_turn and is_same and not newer.is_ban)
    ):
        return True
    likeness = len(rule.words & newer.words) / len(rule.words)
    return newer.is_rule and newer.is_change and (likeness >= _ALIKE or (is_same and len(shared) > 1))


def stands(statement: str, replaced: Sequence[str]) -> bool:
    """Return whether a sentence that replaces rules, and is none by its wording, holds in their place.

    One that only takes back, or announces a change, does not; one that says the contrary, or another amount, does.
    """
    plain = statement.lower()
    if _STRIKES.search(plain) and _SECTION.search(plain):
        return False
    if _CHINESE.search(plain) and _TAKES_BACK_CHINESE.search(plain):
        return True
    match = _TAKES_BACK.search(plain)
    if match is None:
        matter, amounts = _matter(plain), _amounts(plain)
        rules = [_read(rule) for rule in replaced]
        return any(
            (rule.is_ban and rule.first <= matter)
            or any(rule.amounts.get(unit, number) != number for unit, number in amounts.items())
            for rule in rules
        )
    objects = next(group for group in match.groups() if group)
    rest = _CLAUSE_END.split(objects, maxsplit=1)[1:]
    return bool(match["statt"] or match["lieu"]) or len(words_of("".join(rest))) > 1


@lru_cache(maxsize=1024)
def _read(rule: str) -> _Rule:
    plain = rule.lower()
    label = _LABEL.match(plain)
    body = plain[label.end() :] if label else plain
    clause = next((part for part in _CLAUSE_END.split(body) if _matter(part)), body)
    left_out = {_stem(match[1]) for match in _COMMAND.finditer(clause)} | set(_CHINESE_AMOUNT.findall(clause))
    first = _matter(clause) - left_out
    return _Rule(first, frozenset(_WORD.findall(clause)), _matter(plain), _amounts(plain), bool(_BAN.search(plain)))


def _object(plain: str) -> frozenset[str]:
    """Return what a statement takes back; nothing where it takes back nothing."""
    if match := _CHINESE.search(plain) and _TAKES_BACK_CHINESE.search(plain):
        return frozenset(_CHINESE_AMOUNT.findall(match["zh"])) or _matter(match["zh"])
    match = _TAKES_BACK.search(plain)
    if match is None:
        return frozenset()
    objects = next(group for group in match.groups() if group)
    return _matter(_CLAUSE_END.split(objects, maxsplit=1)[0])


def _matter(plain: str) -> frozenset[str]:
    """Return the beginnings of a text's informative words, and the pairs of Chinese signs."""
    plain = plain_arabic(plain)
    if _CHINESE.search(plain):
        plain = _CHINESE_GENERIC.sub(" ", plain)
        pairs = (run[at : at + 2] for run in _CHINESE.findall(plain) for at in range(len(run) - 1))
        return frozenset(pairs) | frozenset(_CHINESE_AMOUNT.findall(plain))
    words = (word.removeprefix("ال") for word in _WORD.findall(_NUMBER_WORD.sub("2", plain)))
    return frozenset(_stem(word) for word in words if word not in _GENERIC and len(word) > 1 and not word.isdigit())


def _stem(word: str) -> str:
    """Return the beginning of a word, without an accent and without the sign of a plural."""
    return word.translate(_ACCENTS)[: _STEM + 1].rstrip("s")[:_STEM]


def _amounts(plain: str) -> dict[str, str]:
    """Return a text's numbers by their unit; a number in words counts as one in digits."""
    text = _NUMBER_WORD.sub(lambda match: _NUMBERS[match[0]], plain)
    return {
        _stem(unit): match["number"].rstrip(".,")
        for match in _AMOUNT.finditer(text)
        if (unit := match["sign"] or match["unit"] or "") and unit not in _GENERIC
    }
