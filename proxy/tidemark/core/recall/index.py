"""An index of a conversation's messages by term, and the score of each message for a question.

``pipeline/recall.py`` keeps one for each compacted conversation and adds what a summary newly covers. Messages are only
ever added at the end, and a message's weight does not depend on those after it. So the score over the first messages
is the same in every worker, however much further its index goes. Messages and the question are cut into terms by the
same rules, in scripts with and without spaces.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log
from operator import itemgetter

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen
from tidemark.core.recall.asking import EMPTY_WORDS

_SATURATION, _LENGTH_SHARE = 1.2, 0.75
"""BM25's ``k1`` and ``b``, at the usual values (Robertson and Zaragoza, "The Probabilistic Relevance Framework")."""
_USUAL_TERMS = 40
"""The length that messages are compared with. BM25 uses the average, by which every later message would change all."""
_SCALE, _BITS = 255, 8
"""A weight is stored in eight bits, and the message's place in the 24 above them."""
MOST_MESSAGES = 1 << 24
PREVIOUS, BEFORE_PREVIOUS, NEXT = 0.6, 0.3, 0.2
"""What a message gains of its neighbours' scores: an answer seldom repeats the words of its question."""
MOST_POSTINGS, LEAST_POSTINGS, POSTINGS_BY_TERM = 2_500, 1_000, 10_000
"""Mentions that one question looks at, rarest terms first: they bound its time, and common words say nothing.

A question of four terms looks at the most, and one of ten or more at the least, since its rare ones say enough.
"""
RELEVANT_SHARE = 0.3
"""Messages below this share of the best one's score are left out: they share a common word at most."""
MOST_RANKED = 150
"""Messages whose score their neighbours gain of, best first; far more than a quotation has."""
QUESTION_TERMS = 64
"""Different terms of a question that are looked up, rarest first."""
RARE_TERMS = 16
"""Terms of a question, rarest first, by which an original and the context are compared."""
_QUESTION_CHARS = 4_000
_TERM_BYTES, _POSTING_BYTES = 200, 4
MOST_CHARS = 20_000
"""Characters of one message that are indexed: of a longer text, such as a log, the beginning and the end."""
LONGEST_TERM = 40
"""Longer runs are data (base64, hashes of files) that nobody repeats by heart; their beginning stands for them."""
STEM = 5
"""Letters of a long word that count: "allergic" and "allergies" are one term, in any language with endings."""
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and Han
    "\uac00-\ud7af"  # Hangul has spaces, but its words end in particles
)
_TERM = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_ASCII_TERM = re.compile(r"[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")


@frozen
class RareTerm:
    """A term that a question shares with some of the messages."""

    text: str
    rarity: float
    places: Sequence[int]


class MessageIndex:
    """The messages of one conversation by term. Its state only grows, by ``add``."""

    def __init__(self) -> None:
        self.count = 0
        """Messages that are indexed."""
        self.size = 0
        """About how many bytes the index takes."""
        self.first_call: int | None = None
        """The place of the first message with a call: from there on an agent works."""
        self._postings: dict[str, array[int]] = {}

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages at the end.

        :raises OverflowError: there are more than ``MOST_MESSAGES``
        """
        if self.count + len(messages) > MOST_MESSAGES:
            raise OverflowError(self.count)
        for message in messages:
            if message.calls and self.first_call is None:
                self.first_call = self.count
            self._add(terms_of(searched_text(message)))

    def _add(self, terms: Sequence[str]) -> None:
        place, postings = self.count, self._postings
        length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * len(terms) / _USUAL_TERMS
        for term, mentions in Counter(terms).items():
            weight = mentions / (mentions + _SATURATION * length)
            posting = place << _BITS | max(round(weight * _SCALE), 1)
            existing = postings.get(term)
            if existing is None:
                postings[term] = array("I", (posting,))
                self.size += _TERM_BYTES
            else:
                existing.append(posting)
            self.size += _POSTING_BYTES
        self.count = place + 1

    def scores(self, question: str, count: int) -> dict[int, float]:
        """Return the scores of those of the first ``count`` messages that share something with a question, by place."""
        scores: dict[int, float] = {}
        score_of, looked_at = scores.get, 0
        terms = _terms_of_question(question)
        most = _most_postings(terms)
        for mentions, postings, _ in self._rarest(terms, count)[:QUESTION_TERMS]:
            looked_at += mentions
            if looked_at > most and scores:
                break
            rarity = rarity_of(mentions, count) / _SCALE
            for posting in postings[:mentions]:
                place = posting >> _BITS
                scores[place] = score_of(place, 0.0) + rarity * (posting & _SCALE)
        return scores

    def rare_terms(self, question: str, count: int) -> tuple[list[RareTerm], float]:
        """Return the rarest terms that a question shares with the first ``count`` messages, rarest first.

        Beside them stands the rarity of all terms of the question together, shared or not.
        """
        terms = _terms_of_question(question)
        shared = self._rarest(terms, count)
        total = sum([rarity_of(mentions, count) for mentions, _, _ in shared])
        total += (len(terms) - len(shared)) * rarity_of(0, count)
        rare_terms: list[RareTerm] = []
        looked_at, most = 0, _most_postings(terms)
        for mentions, postings, term in shared[:RARE_TERMS]:
            looked_at += mentions
            if looked_at > most and rare_terms:
                break
            places = [posting >> _BITS for posting in postings[:mentions]]
            rare_terms.append(RareTerm(term, rarity_of(mentions, count), places))
        return rare_terms, total

    def _rarest(self, terms: Iterable[str], count: int) -> list[tuple[int, array[int], str]]:
        """Return how many of the first messages have each term, its postings and the term, rarest terms first."""
        end, shared = count << _BITS, []
        for term in terms:
            postings = self._postings.get(term)
            mentions = 0 if postings is None else bisect_left(postings, end)
            if postings is not None and mentions:
                shared.append((mentions, postings, term))
        shared.sort(key=itemgetter(0))  # stable: equally rare terms stay in the order of the alphabet
        return shared


def _most_postings(terms: Sequence[str]) -> int:
    """Return how many mentions a question of so many different terms looks at."""
    return min(max(POSTINGS_BY_TERM // max(len(terms), 1), LEAST_POSTINGS), MOST_POSTINGS)


def _terms_of_question(question: str) -> list[str]:
    """Return the different terms of a question's beginning and end that name something, in the order of the alphabet.

    A question of nothing but empty words ("What about him?") has them all.
    """
    ends = question if len(question) <= _QUESTION_CHARS else question[:2000] + "\n" + question[-2000:]
    terms = set(terms_of(ends))
    return sorted(terms - _EMPTY_TERMS or terms)


def rarity_of(mentions: int, count: int) -> float:
    """Return the weight of a term that stands in so many of ``count`` messages."""
    return log(1 + (count - mentions + 0.5) / (mentions + 0.5))


def ranked(scores: Mapping[int, float], count: int) -> list[int]:
    """Return the places of messages that bear on a question or stand beside one that does, best first.

    A message's score is its own, 0.6 of the previous one's, 0.3 of the one before and 0.2 of the next. The newer of two
    equal ones comes first.
    """
    best = sorted(scores.items(), key=itemgetter(1), reverse=True)[:MOST_RANKED]
    total = dict(best)
    for place, score in best:
        for neighbour, share in ((place + 1, PREVIOUS), (place + 2, BEFORE_PREVIOUS), (place - 1, NEXT)):
            if 0 <= neighbour < count:
                own = total[neighbour] if neighbour in total else scores.get(neighbour, 0.0)
                total[neighbour] = own + share * score
    least = RELEVANT_SHARE * max(total.values(), default=0.0)
    relevant = [place for place, score in total.items() if score >= least]
    return sorted(relevant, key=lambda place: (-total[place], -place))


def terms_of(text: str) -> list[str]:
    """Return the terms of a text in order: beginnings of words, or pairs of characters.

    Pairs are those of scripts without spaces between words. Case and accents do not count. Names such as
    ``snake_case`` and paths are the terms of their parts.
    """
    if text.isascii():
        return [_stem(word) for word in _ASCII_TERM.findall(text.lower())]
    terms: list[str] = []
    for run in _TERM.findall(plain_text(text)):
        if _IS_UNSPACED.match(run):
            terms += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        else:
            terms.append(_stem(run))
    return terms


def plain_text(text: str) -> str:
    """Return the text in small letters without accents; the vowel signs of Indic scripts stay."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))


def searched_text(message: Message) -> str:
    """Return what is indexed of a message: its text, and the names and arguments of its calls."""
    text = message.text
    if message.calls:
        text = "\n".join([text, *(f"{call.name} {call.arguments}" for call in message.calls)])
    if len(text) <= MOST_CHARS:
        return text
    return text[: MOST_CHARS // 2] + "\n" + text[-MOST_CHARS // 2 :]


def _stem(word: str) -> str:
    """Return the part of a word that counts: its beginning, or a whole name with digits."""
    if len(word) <= STEM:
        return word
    if word.isalpha():
        return word[:STEM]
    return word[:LONGEST_TERM]


_EMPTY_TERMS = frozenset(term for word in EMPTY_WORDS for term in terms_of(word))
