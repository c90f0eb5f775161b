"""Splits messages and an earlier summary into sentences, each with its speaker, and marks the user's rules.

``salience`` weighs them for ``extractive``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tidemark.core.frozen import frozen
from tidemark.core.phrases import Phrase, Reading
from tidemark.summarizers.deadline import Deadline
from tidemark.summarizers.folding import FOLDED_CHARS, NO_MARK, Foldable, Mark, alike, mark_of, marked_end, may_tell
from tidemark.summarizers.labels import is_labelled
from tidemark.summarizers.passages import read_phrases, whole_phrase
from tidemark.summarizers.request import REQUEST
from tidemark.summarizers.results import TakenUp, is_trouble, odd_lines, tells
from tidemark.summarizers.rules import is_document
from tidemark.summarizers.sentences import SENTENCE_CHARS, sentences, tails, words_of
from tidemark.summarizers.transcript import CALLED, EARLIER, USER_SAID, Utterance

_LEDGER_TEXT = "Fact Error Decision Files Commands Links Identifiers Numbers"
LEDGER = frozenset({REQUEST, EARLIER, USER_SAID, *_LEDGER_TEXT.split()})
QUESTION_MARKS = ("?", "\uff1f", "\u061f")  # also of Chinese and Arabic
_ENCODED_CHARS = 60
"""Characters from which a run of letters and digits may be encoded data; a line of PEM has 64."""
_ENCODED = re.compile(r"(?<![\w+/=-])([\w+/=-]{24})[\w+/=-]{36,}", re.ASCII)
ENCODED_MARK = "…"
_ENCODED_LINES = re.compile(rf"([\w+/=-]{{24}}{ENCODED_MARK})(?: [\w+/=-]{{24}}{ENCODED_MARK})+", re.ASCII)
_LEAST_PARTIAL = 8
"""The fewest lines that one of them may stand for if the mark does not say all their differences."""
_RESULT_CHARS = 1500
"""The most characters of a tool result that are all weighed. Once somebody spoke after a longer one, only the lines
that matter are."""
_SIZED_LINES = 12
"""The summary of a call says the size of its result if the result has so many lines."""
_DENIALS, _DENIAL_WORDS = frozenset({"not", "no", "nicht", "kein", "keine", "pas", "non", "nada"}), 6
"""Words that open a sentence which only denies, and the most words of one."""
_DIGIT = re.compile(r"\d")
UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""A letter of a script without spaces between words: Thai, Lao, Chinese, Japanese."""
_CONTEXT = re.compile(r"\[([^\[\]]+)\] (?=\w)")
_MARKER_CHARS = 4
_MARKER = re.compile(r"\d{1,3}[.)]")
"""The number of an item of a list, which a split left alone; it is no statement."""


Changes = dict[int, Mark | None]
"""The marks of pieces that stand for others, by their places; None for each of those others."""


@frozen
class PieceKind:
    """What sets a piece apart from others of its speaker. Most share ``ORDINARY``, which costs nothing."""

    bulk: bool = False
    """Whether the summary has it only if it has everything else."""
    mark: Mark = NO_MARK
    """What the summary says of the sentences that it stands for, or of a call's result."""
    taken_up: bool = False
    """Whether it is a line of a result that somebody takes up later."""
    odd: bool = False
    """Whether it is a line of a list that is unlike all others."""
    listed: bool = False
    """Whether it is a rule among many of one text, such as the instructions of an agent's task."""


ORDINARY, _BULK = PieceKind(), PieceKind(bulk=True)


@frozen
class Piece:
    """A sentence at its place."""

    speaker: str
    phrase: Phrase
    """The sentence as a summary keeps it: its ``plain`` text."""
    line: int
    earlier: bool
    rule: bool
    """Whether it is a rule of the user."""
    question: str = ""
    """The question with which the utterance before ends."""
    kind: PieceKind = ORDINARY
    context: str = ""
    """What others said before that it needs to be understood. It stands in square brackets before it."""
    subject: str = ""
    """What a value belongs to, in words of the talk. It stands in square brackets, once in a line."""
    rides: bool = False
    """Whether it may only stand beside another sentence of its line."""

    def beside(self) -> Piece:
        """Return it as one that may only stand beside another."""
        return self._with(rule=self.rule, subject=self.subject, rides=True)

    def said_by(self, name: str, *, rule: bool) -> Piece:
        """Return it with the name of who said it as its subject, if it has no other one."""
        return self._with(rule=rule, subject=self.subject or name, rides=self.rides)

    def _with(self, *, rule: bool, subject: str, rides: bool) -> Piece:
        """Do what ``replace`` does in a third of its time."""
        return Piece(
            self.speaker,
            self.phrase,
            self.line,
            self.earlier,
            rule,
            self.question,
            self.kind,
            self.context,
            subject,
            rides,
        )

    @property
    def text(self) -> str:
        """The sentence with its context, as a summary has it."""
        return f"[{self.context}] {self.phrase.plain}" if self.context else self.phrase.plain

    @property
    def all_words(self) -> tuple[str, ...]:
        """The words of sentence and context: the same answer to another question is another one."""
        return (*words_of(self.context), *self.phrase.words) if self.context else self.phrase.words


def pieces_of(
    old: Sequence[Utterance], new: Sequence[Utterance], *, with_bulk: bool, reading: Reading, deadline: Deadline
) -> list[Piece]:
    """Return the sentences of an earlier summary's lines and of new utterances, in their order.

    Sentences that are nearly equal are one, at the place of the newest.
    """
    results = _read_results(new, len(old), reading, deadline)
    pieces: list[Piece] = []
    calls: dict[str, int] = {}
    answered: dict[int, str] = {}
    called_lines: set[int] = set()
    long: set[int] = set()
    question = ""
    for line, utterance in enumerate(deadline.over((*old, *new))):
        speaker, earlier = utterance.speaker, line < len(old)
        # Sentences with the same words are the same, whatever their punctuation.
        parts = _parts(utterance, line, results, reading, deadline, earlier=earlier, with_bulk=with_bulk)
        is_carried = speaker in (USER_SAID, REQUEST)
        rules = [part[0].rule for part in parts if part[0].rule is not None] if speaker.startswith("User") else []
        is_pasted = bool(rules) and is_document(len(utterance.text), rules.count("demand"))
        is_list = bool(rules) and not is_carried and is_document(len(utterance.text), len(rules))
        if utterance.text.startswith(CALLED):
            called_lines.add(line)
            calls[utterance.call] = len(pieces)
        elif results and not earlier and speaker.startswith("Tool"):
            long.update([line] if len(utterance.text) > _RESULT_CHARS else [])
            if utterance.call and (place := calls.get(utterance.call)) is not None:
                answered[line] = pieces[place].phrase.plain
                pieces[place] = replace(pieces[place], kind=_size_of(utterance.text))
        for phrase, kind in parts:
            if not phrase.words or (len(phrase.plain) <= _MARKER_CHARS and _MARKER.fullmatch(phrase.plain)):
                continue
            wording = phrase.rule
            rule = is_carried or (wording is not None and (wording == "directive" or not is_pasted))
            own_kind = replace(kind, listed=True) if rule and is_list else kind
            piece = Piece(speaker, phrase, line, earlier, rule, question, own_kind)
            pieces.append(_with_own_context(piece, pieces[-1:]) if earlier else piece)
        question = ""
        if utterance.text.endswith(QUESTION_MARKS) and (phrases := read_phrases(utterance, reading, deadline)):
            question = phrases[-1].sentence
    if results:
        pieces = _with_folded_outputs(pieces, answered, long)
    pieces = _with_folded_speech(pieces, called_lines)
    return pieces if with_bulk else [piece for piece in pieces if not piece.kind.bulk]


def _with_own_context(piece: Piece, above: Sequence[Piece]) -> Piece:
    """Return a sentence of an earlier summary apart from the context that stands before it, or before its line.

    :param above: the sentence before it
    """
    text = piece.phrase.plain
    match = _CONTEXT.match(text) if text.startswith("[") else None
    if match is None:
        is_same = bool(above) and above[0].line == piece.line
        return replace(piece, subject=above[0].subject) if is_same and above[0].subject else piece
    phrase = whole_phrase(text[match.end() :], by_user=piece.speaker.startswith("User"))
    if UNSPACED.search(phrase.plain):
        return replace(piece, phrase=phrase, subject=match[1])
    return replace(piece, phrase=phrase, context=match[1])


def _size_of(result: str) -> PieceKind:
    """Return the kind of a call with this result: the mark has the result's size, if it is long."""
    size = result.count("\n") + 1
    return PieceKind(mark=Mark(size=size)) if size >= _SIZED_LINES else ORDINARY


def _with_folded_outputs(pieces: list[Piece], answered: Mapping[int, str], long: Collection[int]) -> list[Piece]:
    """Return the pieces with the newest only of the lines of results that are nearly equal.

    Lines of one result are folded first, and then those of several results.

    :param answered: the call of each result, by its line
    :param long: the lines of results that are too long to be quoted whole
    """
    return _with_folded_reruns(_with_folded_rows(pieces, long), answered)


def _with_folded_rows(pieces: list[Piece], long: Collection[int]) -> list[Piece]:
    """Return the pieces with the newest only of the lines of one result that are nearly equal."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, places in enumerate(_alike_outputs(pieces)):
        for place in places:
            groups[number, pieces[place].line].append(place)
    changes: Changes = {}
    rows: list[int] = []
    for places in groups.values():
        folded = _folded(pieces, places, is_output=True, partial=pieces[places[0]].line in long)
        if _hides_values(folded):
            rows += places
        else:
            changes.update(folded)
            rows += [place for place, mark in folded.items() if mark is not None]
    # A row of a list says nothing about the list, whatever it counts.
    for place in rows:
        if not is_trouble(pieces[place].phrase):
            pieces[place] = replace(pieces[place], kind=replace(pieces[place].kind, bulk=True))
    return _with_marks(pieces, changes)


def _with_folded_reruns(pieces: list[Piece], answered: Mapping[int, str]) -> list[Piece]:
    """Return the pieces with the newest only of the lines that several results have.

    A line that each of them has once is folded only if their calls are equal: else it is what each was asked.
    """
    changes: Changes = {}
    several: dict[tuple[int, str, str | int], list[int]] = defaultdict(list)
    for number, places in enumerate(_alike_outputs(pieces)):
        for place in places:
            piece = pieces[place]
            call = "" if piece.kind.mark.times > 1 else answered.get(piece.line, piece.line)
            several[number, piece.speaker, call].append(place)
    for places in several.values():
        is_of_each = len({pieces[place].line for place in places}) == len(places)
        folded = _folded(pieces, places, is_output=True, partial=is_of_each)
        changes.update(folded if is_of_each or not _hides_values(folded) else {})
    return _with_marks(pieces, changes)


def _hides_values(changes: Changes) -> bool:
    """Return whether one of a few lines would stand for others although the mark hides how they differ.

    Each number in four lines of a log may be the cause (seen in ``tests/summarizers/talks``).
    """
    return any(mark and mark.is_partial and mark.times < _LEAST_PARTIAL for mark in changes.values())


def _alike_outputs(pieces: Sequence[Piece]) -> Iterator[list[int]]:
    """Yield the places of lines of results that are the same without their digits."""
    outputs = [place for place, piece in enumerate(pieces) if piece.speaker.startswith("Tool")]
    outputs = [place for place in outputs if pieces[place].phrase.words and not pieces[place].kind.taken_up]
    outputs = [place for place in outputs if len(pieces[place].phrase.plain) <= FOLDED_CHARS]
    for places in alike([pieces[place].phrase.plain for place in outputs]):
        yield [outputs[place] for place in places]


def _with_folded_speech(pieces: list[Piece], calls: Collection[int]) -> list[Piece]:
    """Return the pieces with the newest only of the sentences and calls that are nearly equal, by each speaker.

    A rule, a labelled statement and a line of a ledger stand for themselves. A sentence without digits is like no other
    one; if it is said again the summary has it once anyway, without its count.

    :param calls: the lines of calls
    """
    changes: Changes = {}
    for places in alike([piece.phrase.plain for piece in pieces]):
        first, text = pieces[places[0]], pieces[places[0]].phrase.plain
        if len(text) > FOLDED_CHARS or not (first.line in calls or _DIGIT.search(text)) or is_labelled(text):
            continue
        # A line of an earlier summary may stand for many.
        some = [pieces[place].phrase.plain for place in (places[-1], places[len(places) // 2], places[1])]
        if not (first.earlier or may_tell(text, some, len(places))):
            continue
        by_speaker: dict[str, list[int]] = defaultdict(list)
        for place in places:
            if not pieces[place].rule:
                by_speaker[pieces[place].speaker].append(place)
        for speaker, own in by_speaker.items():
            if not speaker.startswith("Tool") and speaker not in LEDGER:
                folded = _folded(pieces, own, is_output=False)
                is_told = first.line in calls or any(mark and mark.values for mark in folded.values())
                changes.update(folded if is_told else {})
    return _with_marks(pieces, changes)


def _folded(pieces: Sequence[Piece], places: Sequence[int], *, is_output: bool, partial: bool = False) -> Changes:
    """Return what folding some pieces changes; nothing if they are not folded."""
    members = [Foldable(pieces[place].phrase.plain, pieces[place].kind.mark) for place in places]
    mark = mark_of(members, is_output=is_output, partial=partial)
    if mark is None:
        return {}
    weighed = [place for place in places if not pieces[place].kind.bulk]
    return {**dict.fromkeys(places), (weighed or places)[-1]: mark}


def _with_marks(pieces: list[Piece], changes: Changes) -> list[Piece]:
    if not changes:
        return pieces
    for place, mark in changes.items():
        if mark is not None:
            pieces[place] = replace(pieces[place], kind=replace(pieces[place].kind, mark=mark))
    return [piece for place, piece in enumerate(pieces) if changes.get(place, NO_MARK) is not None]


def without_encoded_ends(text: str) -> str:
    """Return a text in which encoded data, such as base64, has its beginning only."""
    clipped = _ENCODED.sub(lambda match: match[1] + ENCODED_MARK if _is_mixed(match[0]) else match[0], text)
    return text if clipped == text else _ENCODED_LINES.sub(r"\1", clipped)


def _is_mixed(run: str) -> bool:
    """Return whether characters are encoded data: a digest in hexadecimal digits or a name in one case is none."""
    return len(run) >= 2 * _ENCODED_CHARS or (run.lower() != run != run.upper() and any(map(str.isdigit, run)))


_Part = tuple[Phrase, PieceKind]
"""What a summary keeps or drops as a whole."""


def _read_results(new: Sequence[Utterance], start: int, reading: Reading, deadline: Deadline) -> TakenUp:
    """Return which lines of results are taken up later.

    :param start: the line of the first utterance
    """
    spoken: dict[int, Sequence[Phrase]] = {}
    results: dict[int, Sequence[Phrase]] = {}
    if any(utterance.speaker.startswith("Tool") for utterance in new):
        for line, utterance in enumerate(deadline.over(new), start):
            is_result = utterance.speaker.startswith("Tool")
            (results if is_result else spoken)[line] = read_phrases(utterance, reading, deadline)
    return TakenUp(spoken, results)


def _parts(
    utterance: Utterance,
    line: int,
    results: TakenUp,
    reading: Reading,
    deadline: Deadline,
    *,
    earlier: bool,
    with_bulk: bool,
) -> list[_Part]:
    """Return the parts of an utterance that a summary keeps or drops as a whole."""
    by_user = utterance.speaker.startswith("User")
    if utterance.text.startswith(CALLED) or (earlier and utterance.speaker in LEDGER):
        text, mark = marked_end(utterance.text) if earlier else (utterance.text, NO_MARK)
        return [(whole_phrase(text, by_user=by_user), PieceKind(mark=mark) if mark != NO_MARK else ORDINARY)]
    phrases = read_phrases(utterance, reading, deadline)
    if phrases and is_labelled(first := phrases[0].sentence) and len(utterance.text) < 2 * len(first) + 120:
        return [(whole_phrase(" ".join(phrase.sentence for phrase in phrases), by_user=by_user), ORDINARY)]
    if utterance.speaker.startswith("Tool") and not earlier:
        parts = list(_parts_of_result(phrases, line, results))
    else:
        if by_user:
            phrases = _with_negations(phrases)
        parts = [
            (phrase if len(phrase.plain) < _ENCODED_CHARS else _clipped(phrase, by_user=by_user), ORDINARY)
            for phrase in phrases
        ]
        if earlier and "]" in utterance.text:
            parts = _with_own_marks(parts, by_user=by_user)
    if with_bulk:
        parts += [(whole_phrase(part, by_user=by_user), _BULK) for part in tails(utterance.text)]
    return parts


def spoken_phrases(text: str) -> Sequence[Phrase]:
    """Return the phrases of a person's text."""
    return _with_negations([whole_phrase(sentence, by_user=True) for sentence in sentences(text)])


def _with_negations(phrases: Sequence[Phrase]) -> Sequence[Phrase]:
    """Return a person's phrases; a few words that only deny go with the sentence before them: "Not half even."."""
    if _DENIALS.isdisjoint([phrase.words[0] for phrase in phrases if phrase.words]):
        return phrases
    joined: list[Phrase] = []
    for phrase in phrases:
        words = phrase.words
        is_denial = bool(words) and words[0] in _DENIALS and len(words) <= _DENIAL_WORDS and not phrase.rule
        if joined and is_denial and len(joined[-1].plain) + len(phrase.sentence) < SENTENCE_CHARS:
            joined[-1] = whole_phrase(f"{joined[-1].plain} {phrase.sentence}", by_user=True)
        else:
            joined.append(phrase)
    return joined


def _with_own_marks(parts: Sequence[_Part], *, by_user: bool) -> list[_Part]:
    """Return the parts of an earlier summary's line, each with the mark that follows it there."""
    marked: list[_Part] = []
    for part in parts:
        text, mark = marked_end(part[0].plain)
        if mark == NO_MARK:
            marked.append(part)
        elif text:
            marked.append((whole_phrase(text, by_user=by_user), PieceKind(mark=mark)))
        elif marked:
            marked[-1] = (marked[-1][0], PieceKind(mark=mark))
    return marked


def _parts_of_result(phrases: Sequence[Phrase], line: int, results: TakenUp) -> Iterator[_Part]:
    """Yield the lines of a tool's result. In a long one, lines are bulk if nobody takes them up and they say no end."""
    taken_up, odd = results.lines(line), odd_lines(phrases)
    weighed = 0
    is_long = sum(len(phrase.sentence) for phrase in phrases) > _RESULT_CHARS
    for place, phrase in enumerate(phrases):
        weighed += len(phrase.sentence)
        # What came last may be taken up by what comes next.
        is_free = weighed <= _RESULT_CHARS and not (is_long and results.follows(line))
        if is_free or place in taken_up or place in odd or tells(phrases, place):
            yield _clipped(phrase, by_user=False), PieceKind(taken_up=place in taken_up, odd=place in odd)
        else:
            yield phrase, _BULK


def _clipped(phrase: Phrase, *, by_user: bool) -> Phrase:
    """Return a phrase in which encoded data has its beginning only."""
    text = without_encoded_ends(phrase.plain)
    return phrase if text == phrase.plain else whole_phrase(text, by_user=by_user)
