"""Weighing sentences: how much each says for its length.

Below ``extractive``. One pass over the text counts its words, a second weighs every sentence; nothing is
tokenized here, so 100,000 tokens take about a tenth of a second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from math import fsum
from typing import NamedTuple

from proxy.core.conversation.messages import Message
from proxy.summarizers.fitting import estimated_tokens
from proxy.summarizers.request import REQUEST, Request, request_of
from proxy.summarizers.signals import (
    is_decision,
    is_error,
    is_fact,
    is_labelled,
    is_rule,
    sentences,
    tails,
    without_lead,
    words_of,
)
from proxy.summarizers.superseding import answer_language
from proxy.summarizers.transcript import CALLED, EARLIER, Utterance, read_back, utterances

_LEDGER = frozenset(
    {
        REQUEST,
        "Rule",
        "Fact",
        "Error",
        "Decision",
        "Files",
        "Commands",
        "Links",
        "Identifiers",
        "Numbers",
        EARLIER,
    }
)
_ANSWERED_SHARE, _OPEN_SHARE = 1.0, 1.5
"""Characters of the open request for a token of the bound: about a quarter of it, and more while it is worked on."""
_RESULT_CHARS = 1500
"""Of a tool's result that is weighed, beside the lines that tell an error."""
_BULK_CHARS = 160
"""Bulk of at least this length is no sentence: there, to repeat something is no idle word but the data."""
_CODE_STARTS = (
    "import ",
    "return ",
    "return;",
    "@",
    "//",
    "/*",
    "* ",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ">>>",
    "#include",
)
_CODE_ENDS = ("{", ";", "(", "},", "],")
_NAME = re.compile(r"[ (\"'][A-Z]\w")
_NUMBER = re.compile(r"\d\d*(?:[.,:/-]\d+)*")
_COMMON_TEXT = """
a about after again all also am an and any are as at back be because been before being but by can
could did do does doing done down each even every few first for from get give go going good got
great had has have having he her here him his how i if in into is isn it its just know last let like
ll look looking lot made make many maybe me more most much my need never new next no not now of off
oh ok okay on one only or other our out over own people please pretty put quite re really right s
said same say see she should so some something still such sure t take than that the their them then
there these they thing things think this those though through time to too tried try two up us use
used using ve very want was way we well were what when where which while who why will with without
won would yeah yes yet you your yours m d don didn doesn thanks thank hello hi hey nice awesome cool
wow amazing sounds glad happy acknowledged continuing fine noted understood
"""
_COMMON = frozenset(_COMMON_TEXT.split())
_ROLE_WEIGHT = {"User": 1.0, "Assistant": 0.85, "Tool": 0.5, "System": 0.7}
_REPEATED = 0.3
"""Worth of a word that was said before, against its mention before that."""
_LEAST_WORTH = 0.05
_RARE, _UNCOMMON = 3, 10
"""Mentions up to which a word is rare, and up to which it is not yet common in this conversation."""
_MOST_NUMBERS = 4
"""Of one sentence that count: a table's row is not worth ten sentences."""
_FIXED_TOKENS = 6.0
"""Added to a sentence's length, so that scraps of two words do not win over sentences."""


class Candidate(NamedTuple):
    """A sentence that may be kept."""

    speaker: str
    text: str
    line: int
    """Sentences of one line were said at one place by one speaker."""
    place: int
    tier: int
    """-1 what the user asks for, 0 what they laid down, 1 all else, 2 the bulk of long results and words."""
    density: float
    """Weight for each token."""
    tokens: float
    """Estimated."""
    earlier: bool
    """Whether it comes out of the previous summary."""


class _Piece(NamedTuple):
    speaker: str
    text: str
    line: int
    earlier: bool
    bulk: bool
    words: tuple[str, ...]


def candidates_of(
    messages: Sequence[Message], previous: str | None, max_tokens: int, *, with_bulk: bool = False
) -> list[Candidate]:
    """All that may be kept, weighed; a sentence that was said before is left out.

    :param with_bulk: also what is left out of long results and words, for a bound that all else does not fill
    """
    old = list(read_back(previous or ""))
    new = list(utterances(messages))
    asked = next((place for place in range(len(new) - 1, -1, -1) if new[place].speaker.startswith("User")), None)
    request, most = request_of(messages), (int(max_tokens * _ANSWERED_SHARE), int(max_tokens * _OPEN_SHARE))
    if request is None or asked is None:
        old = [_carried(one, most) if one.speaker == REQUEST else one for one in old]
    else:
        # An open request that is followed by another one is a thing that was said.
        old = [Utterance("User", one.text) if one.speaker == REQUEST else one for one in old]
        if request.within(*most) == request.text:
            new[asked] = Utterance(new[asked].speaker, "")
    pieces = list(_pieces(old, new, with_bulk=with_bulk))
    weights = _word_weights(pieces)
    found: list[Candidate] = []
    said: set[tuple[str, ...]] = set()
    for place, piece in enumerate(pieces):
        if piece.words and (piece.words not in said or (piece.bulk and len(piece.text) >= _BULK_CHARS)):
            said.add(piece.words)
            found.append(_weighed(piece, place, weights, place / len(pieces)))
    found = [one for one in _in_force(found) if one.density or one.tier != 1] or found
    if request is not None:
        found.append(_request(request.within(*most), pieces))
    return found


def _in_force(found: Sequence[Candidate]) -> list[Candidate]:
    """Without the rules that a newer one replaces."""
    replaced = [place for place, one in enumerate(found) if one.tier == 0 and answer_language(one.text)][:-1]
    return [one for place, one in enumerate(found) if place not in replaced] if replaced else list(found)


def _carried(line: Utterance, most: tuple[int, int]) -> Utterance:
    """A request that nothing new has followed, within a bound that may be smaller than it was."""
    return Utterance(line.speaker, Request(line.text, answered=False).within(*most))


def _word_weights(pieces: Sequence[_Piece]) -> dict[str, float]:
    """What the next mention of each word is worth; common words are left out."""
    counts = Counter(chain.from_iterable(piece.words for piece in pieces))
    return {
        word: 1.0 if count <= _RARE else 0.6 if count <= _UNCOMMON else 0.25
        for word, count in counts.items()
        if len(word) > 1 and word not in _COMMON and not word.isdigit()
    }


def _pieces(old: Sequence[Utterance], new: Sequence[Utterance], *, with_bulk: bool) -> Iterator[_Piece]:
    for line, utterance in enumerate((*old, *new)):
        for text, bulk in _texts(utterance, earlier=line < len(old), with_bulk=with_bulk):
            # A sentence counts by its words: the same one again, in other punctuation, is the same.
            yield _Piece(utterance.speaker, text, line, line < len(old), bulk, words_of(text))


def _texts(utterance: Utterance, *, earlier: bool, with_bulk: bool) -> Iterator[tuple[str, bool]]:
    """What of an utterance is kept or left as one, and whether it is bulk."""
    if utterance.text.startswith(CALLED) or (earlier and utterance.speaker in _LEDGER):
        yield utterance.text, False
        return
    parts = list(sentences(utterance.text))
    if parts and is_labelled(parts[0]) and len(utterance.text) < 2 * len(parts[0]) + 120:
        yield " ".join(parts), False
        return
    result = utterance.speaker.startswith("Tool") and not earlier
    weighed = 0
    for part in parts:
        weighed += len(part)
        if result and weighed > _RESULT_CHARS and not is_error(part, words_of(part)):
            if with_bulk:
                yield part, True
            continue
        plain = without_lead(part)
        if plain:
            yield plain, False
    if with_bulk:
        for part in tails(utterance.text):
            yield part, True


def _weighed(piece: _Piece, place: int, weights: dict[str, float], age: float) -> Candidate:
    """Weigh a sentence, and lower the worth of its words for all that come after it.

    :param age: place in the conversation, 0 the oldest, 1 the newest
    """
    text, words = piece.text, piece.words
    telling = {word: weights[word] for word in weights.keys() & set(words)}
    weight = fsum(telling.values())  # exact, so that the order of a set, another one in every process, is not felt
    weights.update({word: worth * _REPEATED for word, worth in telling.items() if worth > _LEAST_WORTH})
    for number in _NUMBER.findall(text)[:_MOST_NUMBERS]:
        worth = weights.get(number, 1.2 + 0.12 * min(len(number), 10))
        weight += worth
        weights[number] = worth * _REPEATED
    weight += min(len(_NAME.findall(text)), 4)
    weight += 1.0 if "`" in text or "/" in text or "_" in text else 0.0  # names, paths: not to be said otherwise
    by_user = piece.speaker.startswith("User")
    rule = piece.speaker in ("Rule", REQUEST) or (by_user and is_rule(text, words))
    tier = 2 if piece.bulk else -1 if piece.speaker == REQUEST else 0 if rule else 1
    weight += _wording(text, words, by_user=by_user)
    weight *= _ROLE_WEIGHT.get(piece.speaker.partition(" ")[0], 1.0)
    if text[-1] == "?":
        weight *= 0.55
    elif text.startswith(_CODE_STARTS) or text.endswith(_CODE_ENDS):
        weight *= 0.5
    # What an earlier summary kept was the best of its time; among equals the newer one matters more.
    weight *= 1.4 if piece.earlier else 1.0 + 0.15 * age
    tokens = estimated_tokens(text)
    density = weight / (tokens + _FIXED_TOKENS)
    return Candidate(piece.speaker, text, piece.line, place, tier, density, tokens, piece.earlier)


def _wording(text: str, words: Sequence[str], *, by_user: bool) -> float:
    weight = 5.0 if is_labelled(text) else 0.0
    weight += 2.0 if by_user and is_fact(text, words) else 0.0
    weight += 1.5 if is_decision(text, words) else 0.0
    return weight + (1.5 if is_error(text, words) else 0.0)


def _request(text: str, pieces: Sequence[_Piece]) -> Candidate:
    """The open request: what the user asked last, as they said it, at the end of the summary."""
    line = pieces[-1].line + 1 if pieces else 0
    return Candidate(REQUEST, text, line, len(pieces), -1, 1.0, estimated_tokens(text), earlier=False)
