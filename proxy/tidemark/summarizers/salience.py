"""Weighs sentences: how informative each one is for its length.

``extractive`` uses it. One pass over the text counts its words, and a second weighs every sentence. Nothing is
tokenized here, so 100,000 tokens take about a tenth of a second.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from tidemark.core.conversation.messages import Message
from tidemark.core.phrases import Phrase, Reading
from tidemark.core.recall.asking import asking
from tidemark.summarizers.asides import LEAST_WORDS, within_brackets, without_asides
from tidemark.summarizers.candidates import Candidate
from tidemark.summarizers.days import days_of
from tidemark.summarizers.deadline import UNBOUNDED, Deadline
from tidemark.summarizers.fitting import ASCII_CHARS, estimated_tokens
from tidemark.summarizers.labels import is_safety, label_of
from tidemark.summarizers.pieces import ENCODED_MARK, LEDGER, ORDINARY, QUESTION_MARKS, Piece, pieces_of, spoken_phrases
from tidemark.summarizers.request import REQUEST, Request, request_of
from tidemark.summarizers.revoking import Revocation, revocation_of
from tidemark.summarizers.sentences import sentences, words_of
from tidemark.summarizers.standing import in_force, newest_first, say_again, without_outdated, without_revoked
from tidemark.summarizers.subjects import with_subjects
from tidemark.summarizers.superseding import updated_statement
from tidemark.summarizers.transcript import CALLED, Utterance, read_back, utterances

_REQUEST_SHARE = 0.8
"""Characters of the request for each token of the bound, about a fifth of it. An agent's task with hundreds of lines of
instructions is cut, since what the agent found stands nowhere else."""
_BULK_CHARS = 160
"""Bulk of at least this length is data and no sentence, so that a repetition in it stays."""
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
_CODE_FIRST = frozenset(start[0] for start in _CODE_STARTS)
_CODE_ENDS = ("{", ";", "(", "},", "],")
_NAME = re.compile(r"[ (\"'«„“¿¡][A-ZÀ-ÖØ-ÞČĆŁŚŠŽŻŹΑ-ΩА-Я]\w")
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
_ROLE_WEIGHT = {"Assistant": 0.95, "Tool": 0.5, "System": 0.7}
"""The factor for a role. Of two sentences that tell as much, the user's comes first."""
_ODD = 0.75
"""What a line of a result gains that is unlike all others of its list, as an error there."""
_TAKEN_UP = 1.5
"""The factor for a line of a result that somebody takes up later."""
_MARK_CHARS = 2.8
"""Characters of a token of a mark, which has many digits and brackets."""
_REPEATED = 0.3
"""Worth of a repeated word, as a share of its worth at the mention before."""
_LEAST_WORTH = 0.05
_LABELLED = 8.0
"""What a label adds to a weight."""
_REPLY, _TIME = 1.0, 0.3
"""What a sentence of a talk gains after a question and by a time."""
_TIME_TEXT = """
yesterday today tomorrow tonight ago last next week weekend month year years weeks months days summer winter spring
autumn morning evening since monday tuesday wednesday thursday friday saturday sunday january february march april
june july august september october november december
gestern heute morgen woche monat jahr hier demain semaine mois année ayer mañana semana mes año
"""
_TIME_WORDS = frozenset(_TIME_TEXT.split())
_RARE, _UNCOMMON = 3, 10
"""Mentions up to which a word is rare, and up to which it is uncommon, in this conversation."""
_EVERYDAY, _SPREAD, _RAREST = 4.0, 7.0, 1.1
"""The logarithm of a rank that tells nothing, how many more are worth 1, and the highest worth."""
_WITH_DIGITS = 0.85
"""The worth of an identifier, whose numbers count by themselves."""
_AT_ONCE = 1_000
"""The pieces whose words are counted in one call."""
_ENCODED_WEIGHT = 0.05
"""The factor for a line of encoded data: its words are rare and tell nothing."""
_MOST_NUMBERS = 4
"""Numbers of one sentence that count, since a table's row is not worth ten sentences."""
_RECENCY = 0.15
"""What the newest sentence gains over the oldest."""
FIXED_TOKENS = 6.0
"""Tokens that are added to a sentence's length, so that fragments of two words do not win."""


_SAFETY_WEIGHT = 20.0
"""Rules that their speaker labels as safety come before all other rules."""


def candidates_of(
    messages: Sequence[Message],
    previous: str | None,
    max_tokens: int,
    *,
    with_bulk: bool = False,
    rank_of: Callable[[str], int | None] = lambda _: None,
    reading: Reading | None = None,
    deadline: Deadline = UNBOUNDED,
) -> list[Candidate]:
    """Return the sentences that a summary may keep, weighed, without repetitions.

    :param rank_of: the place of a word in a list of words, frequent ones first; None if it is not there
    :param with_bulk: also return the bulk of long results and words, for a bound that the rest does not fill
    :param reading: what was read before of the same texts
    :raises SummaryOverdue: the deadline has passed
    """
    old = list(read_back(previous or ""))
    new = list(deadline.over(utterances(messages)))
    days = days_of([_talked(line) for line in (*old, *new)], [line.day for line in old])
    last_user = next((place for place in range(len(new) - 1, -1, -1) if new[place].speaker.startswith("User")), None)
    request, max_chars = request_of(messages), (int(max_tokens * _REQUEST_SHARE),) * 2
    if request is None or last_user is None:
        old = [_bounded_request(line, max_chars) if line.speaker == REQUEST else line for line in old]
    else:
        # An open request that another one follows is a text of the user like any other.
        old = [Utterance("User", line.text) if line.speaker == REQUEST else line for line in old]
        if request.answered and _is_no_request(request, [*old, *new[:last_user]]):
            request = None
        elif request.within(*max_chars) == request.text:
            new[last_user] = Utterance(new[last_user].speaker, "")
    pieces = pieces_of(old, new, with_bulk=with_bulk, reading=reading or Reading(), deadline=deadline)
    weights = _word_weights(pieces)
    pieces = with_subjects(without_asides(pieces, weights), deadline)
    weights = {word: worth * _rarity(word, rank_of) for word, worth in weights.items()}
    weighing = _Weighing(len(pieces), weights, days)
    weighing.phrases.update(words_of(text) for text in sentences(request.within(*max_chars) if request else ""))
    weighing.read(pieces, deadline)
    candidates = weighing.finish(request)
    informative = [candidate for candidate in candidates if candidate.density or candidate.tier != 1]
    candidates = informative or candidates
    if request is not None:
        text = request.within(*max_chars)
        is_rule = any(piece.rule and piece.phrase.plain == text for piece in pieces)
        question = "" if is_rule else _asked_before(new[: last_user or 0], text)
        has_room = len(question) + len(text) <= max_chars[0]
        candidates.append(_request(text, question if has_room else "", pieces))
    return candidates


def _talked(line: Utterance) -> str:
    """Return what a person or a model said; empty for a tool, a call and a ledger."""
    is_talk = line.speaker.startswith(("User", "Assistant")) and line.speaker not in LEDGER
    return line.text if is_talk and not line.text.startswith(CALLED) else ""


class _Weighing:
    """Weighs pieces one after the other, each once, and notes what they take back and say anew."""

    def __init__(self, count: int, weights: dict[str, float], days: Sequence[str]) -> None:
        """Begin with nothing but the worth of each word.

        :param count: how many pieces will be weighed
        :param weights: the worth of each word, which the weighing changes
        :param days: the day of each line; empty if the talk states none
        """
        self.phrases: set[tuple[str, ...]] = set()
        """The words of the sentences that were chosen already."""
        self._candidates: list[Candidate] = []
        self._taken_up: list[tuple[int, Piece]] = []
        self._weights = weights
        self._recency, self._count, self._days = _RECENCY / max(count, 1), count, days
        self._revocations: dict[int, Revocation] = {}
        self._updates: dict[int, str] = {}

    def read(self, pieces: Sequence[Piece], deadline: Deadline) -> None:
        """Weigh pieces, or move what they say again.

        :raises SummaryOverdue: the deadline has passed
        """
        phrases, weights, recency = self.phrases, self._weights, self._recency
        days = self._days
        for place, piece in enumerate(deadline.over(pieces)):
            words = piece.all_words if piece.context else piece.phrase.words
            by_user = piece.speaker.startswith("User")
            if words and (words not in phrases or (piece.kind.bulk and len(piece.phrase.plain) >= _BULK_CHARS)):
                phrases.add(words)
                if (statement := updated_statement(piece.phrase.plain, words)) is not None:
                    self._updates[place] = statement
                if by_user and (revocation := revocation_of(piece.phrase.plain, words)):
                    self._revocations[place] = revocation
                    self._candidates.append(
                        _weigh(_with_rule(piece, revocation), place, weights, recency * place, days)
                    )
                elif piece.kind is not ORDINARY and piece.kind.taken_up and not piece.phrase.is_error:
                    self._taken_up.append((place, piece))
                else:
                    self._candidates.append(_weigh(piece, place, weights, recency * place, days))
            elif words and by_user and self._revocations:
                say_again(self._candidates, self._revocations, piece, place)

    def finish(self, request: Request | None) -> list[Candidate]:
        """Return the candidates that stand, in their order."""
        if self._taken_up:  # who takes it up says more, so that one repeats nothing, and the line does
            recency = self._recency
            self._candidates += [
                _weigh(piece, place, self._weights, recency * place, self._days) for place, piece in self._taken_up
            ]
            self._candidates.sort(key=attrgetter("place"))
        if request is not None:
            self._revocations.update(_revocations_in(request.text, self._count))
        candidates = without_outdated(newest_first(self._candidates, self._weights), self._updates)
        return in_force(without_revoked(candidates, self._revocations))


def _with_rule(piece: Piece, revocation: Revocation) -> Piece:
    """Return a piece that takes something back; a change of mind is a rule, with or without an older one."""
    return replace(piece, rule=piece.rule or bool(revocation.words))


def _revocations_in(request: str, start: int) -> Iterator[tuple[int, Revocation]]:
    """Yield what the open request takes back, by places after all others."""
    for place, phrase in enumerate(spoken_phrases(request), start):
        if revocation := revocation_of(phrase.plain, phrase.words):
            yield place, revocation


def _is_no_request(request: Request, before: Sequence[Utterance]) -> bool:
    """Return whether what was answered asks for nothing, or was said before, such as "Go on."."""
    if not asking(request.text):
        return True
    words = words_of(request.text)
    max_chars = 2 * len(request.text)
    users = (line.text for line in before if line.speaker.startswith("User") and len(line.text) <= max_chars)
    last = words[-1] if words else ""
    return any(last in text.lower() and words_of(text) == words for text in users)


def _bounded_request(line: Utterance, max_chars: tuple[int, int]) -> Utterance:
    """Return a carried request within its bound, which may be smaller than it was for the earlier summary."""
    return Utterance(line.speaker, Request(line.text, answered=False).within(*max_chars))


def _word_weights(pieces: Sequence[Piece]) -> dict[str, float]:
    """Return the worth of the next mention of each word in this conversation; common words are missing."""
    counts: Counter[str] = Counter()
    for first in range(0, len(pieces), _AT_ONCE):  # one call for millions of words would keep the interpreter
        counts.update(chain.from_iterable([piece.phrase.words for piece in pieces[first : first + _AT_ONCE]]))
    return {
        word: 1.0 if count <= _RARE else 0.6 if count <= _UNCOMMON else 0.25
        for word, count in counts.items()
        if len(word) > 1 and word not in _COMMON and not word.isdigit()
    }


def _rarity(word: str, rank_of: Callable[[str], int | None]) -> float:
    """Return the factor for a word by its rank in its language, as information grows with the logarithm (Zipf)."""
    if not word.isalpha():
        return _WITH_DIGITS
    rank = rank_of(word)
    if rank is None:  # vocabularies lack most words of other scripts, so that a missing one says little
        return _RAREST if word.isascii() else 1.0
    return min(max((math.log(rank + 1) - _EVERYDAY) / _SPREAD, 0.0), _RAREST)


def _weigh(piece: Piece, place: int, weights: dict[str, float], recency: float, days: Sequence[str]) -> Candidate:
    """Weigh a sentence, and lower the worth of its words for the sentences after it.

    :param weights: the worth of each word, which this changes
    :param recency: what it gains by its place in the conversation; 0 for the oldest
    :param days: the day of each line; empty if the talk states none
    """
    phrase, speaker = piece.phrase, piece.speaker
    text = phrase.plain
    weight = _worth_of(piece.all_words if piece.context else phrase.words, weights)
    for number in _NUMBER.findall(text)[:_MOST_NUMBERS]:
        worth = weights.get(number, 1.2 + 0.12 * min(len(number), 10))
        weight += worth
        weights[number] = worth * _REPEATED
    if not (text.isascii() and text[1:].islower()):  # it has a capital beside the first letter
        weight += min(len(_NAME.findall(text)), 4)
    if "`" in text or "/" in text or "_" in text:
        weight += 1.5  # names and paths have no other wording
    tier = 2 if piece.kind.bulk else -1 if speaker == REQUEST else 0 if piece.rule else 1
    label = label_of(text) if ":" in text and tier in (0, 1) else ""
    if label or phrase.is_fact or phrase.is_decision or phrase.is_error:
        weight += _wording(phrase) + (_LABELLED if label else 0.0)
    if tier == 1 and not label and not speaker.startswith("Tool"):
        weight = _in_talk(piece, weight)
    weight *= _ROLE_WEIGHT.get(speaker.partition(" ")[0], 1.0)
    weight *= _form_weight(text)
    # An earlier summary kept the best of its time; among equal sentences the newer one matters more.
    weight *= 1.4 if piece.earlier else 1.0 + recency
    if tier == 0 and is_safety(text):
        weight *= _SAFETY_WEIGHT
    text = piece.text if piece.context else text
    tokens, mark, listed = estimated_tokens(text), "", False
    if piece.kind is not ORDINARY:
        weight *= _TAKEN_UP if piece.kind.taken_up else 1.0
        weight += _ODD if piece.kind.odd and not phrase.is_error else 0.0
        mark = str(piece.kind.mark)
        tokens += len(mark) / _MARK_CHARS
        listed = piece.kind.listed and not is_safety(text)
    density = weight / (tokens - len(label) / ASCII_CHARS + FIXED_TOKENS)
    day = days[piece.line] if days and speaker not in LEDGER else ""
    shown = label, mark, listed, piece.rides, piece.subject, day
    return Candidate(speaker, text, piece.line, place, tier, density, tokens, piece.earlier, *shown)


def _worth_of(words: Sequence[str], weights: dict[str, float]) -> float:
    """Return the worth of the words of a sentence, and lower it for the sentences after it."""
    total = 0.0
    for word in dict.fromkeys(filter(weights.__contains__, words)):
        worth = weights[word]
        total += worth
        if worth > _LEAST_WORTH:
            weights[word] = worth * _REPEATED
    return total


def _in_talk(piece: Piece, weight: float) -> float:
    """Return the weight of a sentence of a talk: answers and times tell more."""
    if piece.question and weight:
        weight += _REPLY
    return weight if _TIME_WORDS.isdisjoint(piece.phrase.words) else weight + _TIME


def _form_weight(text: str) -> float:
    """Return the factor for encoded data, questions and code."""
    if text[-1] == ENCODED_MARK and " " not in text:
        return _ENCODED_WEIGHT
    if text[-1] == "?":
        return 0.55
    is_code = (text[0] in _CODE_FIRST and text.startswith(_CODE_STARTS)) or text.endswith(_CODE_ENDS)
    return 0.5 if is_code else 1.0


def _wording(phrase: Phrase) -> float:
    weight = 2.0 if phrase.is_fact else 0.0
    weight += 1.5 if phrase.is_decision else 0.0
    return weight + (1.5 if phrase.is_error else 0.0)


def _asked_before(before: Sequence[Utterance], request: str) -> str:
    """Return the question that a request of a few words answers, such as "Yes, both."; empty if it answers none."""
    text = before[-1].text if before and before[-1].speaker == "Assistant" else ""
    if not text.endswith(QUESTION_MARKS) or len(set(words_of(request)) - _COMMON) >= LEAST_WORDS:
        return ""
    return within_brackets(sentences(text)[-1])


def _request(text: str, question: str, pieces: Sequence[Piece]) -> Candidate:
    """Return the open request in the user's words, as the last line of the summary.

    :param question: what it answers; it stands before it in brackets
    """
    line = max((piece.line for piece in pieces), default=-1) + 1
    tokens = estimated_tokens(text)
    return Candidate(REQUEST, text, line, len(pieces), -1, 1.0, tokens, earlier=False, subject=question)
