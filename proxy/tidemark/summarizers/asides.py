"""Tells statements from asides: "Mm-hmm.", "Yikes.", "That's fair enough.".

``salience`` uses it. An aside has fewer than three words that tell something, and no value, rule or decision. A short
answer is none: it stands with its question. The words are counted in the conversation at hand, so that no language
needs a list of interjections; English numerals alone are listed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidemark.summarizers.labels import label_of
from tidemark.summarizers.pieces import LEDGER, QUESTION_MARKS, UNSPACED, Piece
from tidemark.summarizers.sentences import words_of
from tidemark.summarizers.transcript import CALLED

LEAST_WORDS = 3
"""The least words that tell something in a line."""
_LONG_CHARS = 90
"""A sentence of so many characters is no aside."""
_UNSPACED_CHARS = 2
"""Such letters of a word, on an average."""
_VALUE = re.compile(
    # It starts with a simple class, so that the search skips from sign to sign.
    r"[\d`/_@.](?:(?<=[\d`])|(?<=[\w.-]/)(?=[\w.-])|(?<=\w[_@])(?=\w)|(?<=\w\.)(?=\w{2,4}\b))"
)
"""A number, a path, an identifier, an address or a file."""
_INNER_NAME = re.compile(r"(?<![,.!?:…])(?<!^)[ (\"'«„“¿¡]([A-ZÀ-ÖØ-ÞČĆŁŚŠŽŻŹΑ-ΩА-Я]\w+)")
"""A name or a German noun, neither at the beginning nor after a comma, where it may only call somebody."""
_SPEAKER = re.compile(r"[^\W\d_a-z][\w.'\u2019-]*(?: [^\W\d_a-z][\w.'\u2019-]*){0,4}: (?=\S)")
_LEAST_TURNS = 3
"""How often a name begins a message before it is a speaker's."""
_ROLES = ("User", "Assistant")
_LEAST_NAMES = 2
"""How many names must speak in both roles of minutes."""
_NAMED_SHARE = 0.8
"""The least part of the messages of each role that begin with a name in minutes."""
_QUESTION_CHARS = 120
"""The most characters of a question beside its answer."""
_NUMERALS = frozenset(["three", "four", "five", "six", "seven", "eight", "nine", "ten"])
"""Whoever tests a microphone counts; further common words are in ``salience``."""
_RARE = 1.0
"""The worth of a word that the conversation has a few times at most."""


def without_asides(pieces: Sequence[Piece], weights: Mapping[str, float]) -> list[Piece]:
    """Return the pieces that say something, each short answer with its question.

    A few words beside statements of the same message may stand with one of these. If nobody says anything, all stay.

    :param weights: the worth of each word; common ones are missing
    """
    speakers = _speakers(pieces)
    if len(speakers) > 1 and (people := _people(pieces)):
        pieces = _with_names(pieces, people)
    informative = weights.keys() - _NUMERALS
    short: list[int] = []
    for place, piece in enumerate(pieces):
        phrase = piece.phrase
        # Most sentences are long, or have enough words that tell something and no speaker's name before them.
        if (
            len(phrase.plain) < _LONG_CHARS
            and (len(informative.intersection(phrase.words)) < LEAST_WORDS or (speakers and ": " in phrase.plain))
            and not _tells(piece, weights, informative, speakers)
        ):
            short.append(place)
    telling: list[Piece | None] = list(pieces)
    for place in short:
        telling[place] = None
    lines = {piece.line for piece in telling if piece is not None}
    beside: set[tuple[str, ...]] = set()
    for place in short:
        piece = pieces[place]
        if piece.question and (question := _question_of(piece, weights, informative, speakers)):
            telling[place] = replace(piece, context=question)
        elif piece.line in lines and piece.phrase.words not in beside:
            beside.add(piece.phrase.words)
            telling[place] = piece.beside()
    return [piece for piece in telling if piece is not None] or list(pieces)


def _speakers(pieces: Sequence[Piece]) -> set[str]:
    """Return the names with which several messages begin, with their colons: "Petra Holm: "."""
    texts: list[str] = []
    above = -1
    for piece in pieces:
        if piece.line != above:  # the first sentence of a message
            above = piece.line
            if ": " in piece.phrase.plain and not piece.speaker.startswith("Tool"):
                texts.append(piece.phrase.plain)
    names = Counter(match[0] for text in texts if (match := _SPEAKER.match(text)))
    return {name for name, count in names.items() if count >= _LEAST_TURNS}


def _with_names(pieces: Sequence[Piece], people: Collection[str]) -> Sequence[Piece]:
    """Return the pieces of minutes: each sentence has its speaker's name, the first one in its text.

    Nobody addresses the assistant there: what a speaker asks for is no rule.
    """
    result: list[Piece] = []
    above, name = -1, ""
    for piece in pieces:
        own = name
        match = _SPEAKER.match(piece.phrase.plain) if ": " in piece.phrase.plain else None
        if match and match[0] in people:
            own, name = "", match[0][:-2]
        elif piece.line != above:
            own = name = ""
        above = piece.line
        is_rule = piece.rule and not name
        result.append(piece.said_by(own, rule=is_rule) if own or is_rule != piece.rule else piece)
    return result


def _people(pieces: Sequence[Piece]) -> set[str]:
    """Return the names of the speakers, with their colons, if the conversation is the minutes of several people.

    It is if nearly all messages of both roles begin with names, and several of these names speak in both. In a group
    chat with an assistant, in a play for two, or behind labels such as "Task:", somebody may be addressed.
    """
    messages: Counter[str] = Counter()
    openings: Counter[tuple[str, str]] = Counter()
    above = -1
    for piece in pieces:
        role = next(filter(piece.speaker.startswith, _ROLES), "")
        if piece.line == above or not role:
            continue
        above = piece.line
        messages[role] += 1
        if ": " in piece.phrase.plain and (match := _SPEAKER.match(piece.phrase.plain)) and not label_of(match[0]):
            openings[match[0], role] += 1
    often = {key: count for key, count in openings.items() if count >= _LEAST_TURNS}
    people = {name for name, _ in often if all((name, role) in often for role in _ROLES)}
    covered = {role: sum(count for (_, own), count in often.items() if own == role) for role in messages}
    is_minutes = len(messages) > 1 and all(covered[role] >= _NAMED_SHARE * messages[role] for role in messages)
    return {name for name, _ in often} if is_minutes and len(people) >= _LEAST_NAMES else set()


def _tells(piece: Piece, weights: Mapping[str, float], informative: Collection[str], speakers: Collection[str]) -> bool:
    """Return whether a piece may have a line of its own."""
    phrase, speaker = piece.phrase, piece.speaker
    if (
        piece.context
        or (piece.earlier and piece.subject)
        or (piece.rule and len(phrase.words) > 1)
        or phrase.is_fact
        or phrase.is_error
        or speaker.startswith("Tool")
    ):
        return True
    start, words = _start(phrase.plain, speakers) if speakers else 0, phrase.words
    words = words[len(words_of(phrase.plain[:start])) :] if start else words
    if _count(words, informative) >= LEAST_WORDS:
        return True
    text = phrase.plain[start:]
    if speaker in LEDGER or text.startswith(CALLED) or _VALUE.search(text) or label_of(text):
        return True
    return not text.endswith("!") and any(weights.get(name.lower(), 0.0) >= _RARE for name in _INNER_NAME.findall(text))


def _start(text: str, speakers: Collection[str]) -> int:
    """Return where a text begins after its speaker's name."""
    match = _SPEAKER.match(text) if speakers and ": " in text else None
    return match.end() if match and match[0] in speakers else 0


def _count(words: Sequence[str], informative: Collection[str]) -> int:
    """Return how many words tell something."""
    if "".join(words).isascii():
        return sum(map(informative.__contains__, words))
    count = 0
    for word in words:
        if not word.isascii() and (letters := len(UNSPACED.findall(word))):
            count += letters // _UNSPACED_CHARS
        elif word in informative:
            count += 1
    return count


def _question_of(
    piece: Piece, weights: Mapping[str, float], informative: Collection[str], speakers: Collection[str]
) -> str:
    """Return the question that a few words answer; empty if they answer none.

    An answer has a rare word, and question and answer together tell as much as a line does.
    """
    question = asked_before(piece, speakers)
    words = piece.phrase.words[len(words_of(piece.phrase.plain[: _start(piece.phrase.plain, speakers)])) :]
    is_answer = any(weights.get(word, 0.0) >= _RARE for word in words)
    return question if is_answer and _count((*words_of(question), *words), informative) >= LEAST_WORDS else ""


def asked_before(piece: Piece, speakers: Collection[str] = ()) -> str:
    """Return the question as it stands before its answer, its end if it is long; empty if it cannot."""
    if piece.phrase.plain.endswith(QUESTION_MARKS):
        return ""
    return within_brackets(piece.question[_start(piece.question, speakers) :])


def within_brackets(question: str) -> str:
    """Return a question as it stands before its answer, its end if it is long; empty if it has brackets."""
    if "[" in question or "]" in question:
        return ""
    return question if len(question) <= _QUESTION_CHARS else "…" + question[-_QUESTION_CHARS:].partition(" ")[2]
