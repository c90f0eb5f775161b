"""Asking: which sentences of a user's message ask for something.

``pipeline/recall.py`` looks originals up for what is asked. A person who tells something ("I went hiking") asks for
nothing, and what would come back for it takes space that the next question needs.
"""

from __future__ import annotations

import re

QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")
"""Those of Latin, Chinese and Japanese, Arabic and Greek."""
_MOST_CHARS = 4_000
"""Of a longer message the beginning and the end are read, as by the index."""
_SENTENCE = re.compile(r"(?<=[.!?…؟;。！？])[\s\"'”’»)\]]+|(?<=[。！？؟])|\n+")
_MARK = re.compile(r"[?\u037e][\"'”’»)\]*_]*$|[\uff1f\u061f]")
_QUESTION_TEXT = """
who whom whose what which when where why how
wer wem wen wessen was welche welcher welches welchen welchem wann wo woher wohin warum wieso weshalb wie wieviel
qui que quoi quel quelle quels quelles quand où pourquoi comment combien
quién quiénes qué cuál cuáles cuándo dónde adónde cuánto cuánta cuántos cuántas
chi cosa quale quali quando dove perché come quanto quanta quanti quante
quem qual quais onde porquê quantos quantas
wie wat welk welke wanneer waar waarom hoe hoeveel
kto co który która które kiedy gdzie dlaczego jak ile
кто кого кому чей что какой какая какое какие когда где куда откуда почему зачем как сколько
من ما ماذا متى أين لماذا كيف كم أي هل
kim ne hangi nerede nereye neden niçin nasıl kaç
"""
QUESTION_WORDS = frozenset(_QUESTION_TEXT.split())
"""Words that ask and name nothing, so that two texts which share one have nothing in common."""
_HELPER_TEXT = """
a about am an and any are at be been can could did do does ever for from give had has have her hers him his i if in is
it its list many may me mention more much my of on or our please remember remind said say she he should show so tell
that the their them then they this to told us was we were will with would you your
der die das den dem des ein eine einen einem einer er sie es ich du wir ihr hat haben hatte hast habe ist sind war
waren mein meine dein deine sein seine und oder von zu zum zur mit für
le la les un une des du de je tu il elle nous vous ils elles est sont était avait ont mon ma mes ton ta tes son sa ses
el los las una uno del es son era fue había mi mis tu tus su sus
"""
EMPTY_WORDS = QUESTION_WORDS | frozenset(_HELPER_TEXT.split())
"""Words of a question that name nothing it is about."""
_REQUEST_TEXT = """
tell give show list remind explain describe summarize summarise find recall quote repeat name write draft compare check
calculate compute look help please continue
sag sagen nenn nenne zeig zeige erklär erkläre erinner erinnere schreib schreibe liste vergleiche bitte fasse
dis donne montre rappelle explique décris résume écris cite compare vérifie
dime dame muestra recuérdame explica describe resume escribe busca compara
dimmi dammi mostra ricordami spiega scrivi riassumi
diga mostre lembre explique escreva resuma
zeg geef toon schrijf leg vat
powiedz podaj pokaż przypomnij wyjaśnij napisz
скажи скажите покажи напомни напомните объясни опиши напиши перечисли найди
قل أخبرني اذكر اشرح اكتب لخص
söyle göster hatırlat açıkla yaz
can could would will do does did is are was were has have should
"""
_OPENERS = QUESTION_WORDS | frozenset(_REQUEST_TEXT.split())
_UNSPACED = re.compile(
    "什么|甚么|哪|谁|誰|几[个点时月号岁]|幾|多少|多大|多长|多久|怎么|怎样|如何|为什么|請問|请问|告诉|告訴|吗|嗎|呢$|是不是|有没有"
    "|何|どこ|いつ|だれ|どの|どう|なぜ|いくら|いくつ|教えて|ですか|ますか|でしたか|ましたか"
    "|무엇|뭐|어디|언제|누구|누가|얼마|어떻게|왜|몇|알려|습니까|나요|까요|인가요"
    "|อะไร|ที่ไหน|เมื่อไ|ใคร|เท่าไ|อย่างไร|ทำไม|กี่|ไหม|หรือเปล่า|บอก"
)
"""Words that ask in scripts without spaces, and endings of questions in Korean."""
_WORD = re.compile(r"[^\W\d_]+")


def asking(text: str) -> str:
    """Return the sentences of a message that ask for something.

    A sentence asks by its question mark, or by its first word: a question word or the name of a request. Scripts
    without spaces ask by a word anywhere.
    """
    ends = text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS // 2] + "\n" + text[-_MOST_CHARS // 2 :]
    return "\n".join([sentence for sentence in _SENTENCE.split(ends) if _asks(sentence)])


def _asks(sentence: str) -> bool:
    if _MARK.search(sentence.rstrip()) or (not sentence.isascii() and _UNSPACED.search(sentence)):
        return True
    first = _WORD.search(sentence)
    return first is not None and first.group().casefold() in _OPENERS
