"""Decides which statements of a conversation still stand: the newest rules and values, unless somebody took them back.

``salience.py`` calls it after it has weighed the sentences; ``superseding.py`` and ``revoking.py`` compare their texts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.summarizers.candidates import Candidate
from tidemark.summarizers.labels import is_safety
from tidemark.summarizers.pieces import Piece
from tidemark.summarizers.revoking import Revocation, related_rules
from tidemark.summarizers.sentences import words_of
from tidemark.summarizers.superseding import (
    Statements,
    answer_language,
    is_prohibition,
    plain_words,
    values_of,
    without_value,
)

_REPLACED_WEIGHT = 0.5
"""What a newer statement on the matter leaves of a weight."""


def say_again(candidates: list[Candidate], revocations: dict[int, Revocation], piece: Piece, place: int) -> None:
    """Move a rule, or what takes one back, to where it is said again.

    The newest of the two holds.
    """
    for index, candidate in enumerate(candidates):
        if (candidate.tier == 0 or candidate.place in revocations) and words_of(candidate.text) == piece.phrase.words:
            candidates.append(replace(candidates.pop(index), line=piece.line, place=place, earlier=piece.earlier))
            if candidate.place in revocations:
                revocations[place] = revocations.pop(candidate.place)
            return


def without_revoked(candidates: Sequence[Candidate], revocations: Mapping[int, Revocation]) -> list[Candidate]:
    """Return the candidates without the rules that a later one takes back, which becomes a rule itself.

    :param revocations: what candidates take back, by their places in the conversation
    """
    result: dict[int, Candidate] = {candidate.place: candidate for candidate in candidates}
    rules = [candidate.place for candidate in candidates if candidate.tier == 0] if revocations else []
    for place, revocation in revocations.items():
        standing = [(earlier, result[earlier].text) for earlier in rules if earlier < place and earlier in result]
        for at, is_whole in related_rules([text for _, text in standing], revocation):
            if place in result:  # else it is the open request
                result[place] = replace(result[place], tier=0)
                rules.append(place)
            if is_whole:
                result.pop(standing[at][0], None)
    return list(result.values())


def in_force(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without the rules that a newer rule replaces."""
    languages = {
        place for place, candidate in enumerate(candidates) if candidate.tier == 0 and answer_language(candidate.text)
    }
    replaced = languages - {max(languages, default=-1)}  # the newest rule holds
    newest: dict[str, int] = {}
    for place, candidate in enumerate(candidates):
        # A statement that its speaker set apart, by a label or as a rule; others may be rows of one list.
        is_apart = candidate.tier == 0 or (candidate.tier == 1 and candidate.label)
        if is_apart and (statement := without_value(candidate.text)) is not None:
            replaced |= {newest[statement]} if statement in newest else set()
            newest[statement] = place
    return [candidate for place, candidate in enumerate(candidates) if place not in replaced]


def without_outdated(candidates: Sequence[Candidate], updates: Mapping[int, str]) -> list[Candidate]:
    """Return the candidates without the statements whose value a later one says anew.

    :param updates: the statements, as ``updated_statement`` gives them, by the places of those that say them anew
    """
    if not updates:
        return list(candidates)
    newest = {statement: place for place, statement in updates.items()}
    standing: list[Candidate] = []
    for candidate in candidates:
        statement = updates.get(candidate.place) or without_value(candidate.text)
        if statement is None or candidate.place >= newest.get(statement, candidate.place):
            standing.append(candidate)
    return standing


def newest_first(candidates: Sequence[Candidate], weights: Mapping[str, float]) -> list[Candidate]:
    """Return the candidates; of labelled statements on the same matter, the older ones weigh less than the newest.

    A rule whose value a newer one changes competes with ordinary sentences. A prohibition does not, since two can hold
    at once, and neither does a rule that its speaker labelled as safety.
    """
    statements: dict[tuple[str, str], Statements] = defaultdict(Statements)
    densities = {place: candidate.density for place, candidate in enumerate(candidates) if candidate.label}
    values: dict[int, frozenset[str]] = {}
    outdated: set[int] = set()
    for place, density in list(densities.items()):
        candidate = candidates[place]
        statement = candidate.text.removeprefix(candidate.label).strip()
        informative = [word for word in plain_words(statement) if word in weights]
        replaced = statements[candidate.speaker, candidate.label].replaced_by(place, informative)
        own = values_of(statement)
        # The newer one weighs less because it repeats words of the older one, which is to go first.
        most = max([densities[earlier] for earlier in replaced], default=0.0)
        densities[place] = max(density, (most + density) / 2)
        for earlier in replaced:
            densities[earlier] *= _REPLACED_WEIGHT
            if own and values.get(earlier, own) != own:
                outdated.add(earlier)
        if own and candidate.tier == 0 and not is_safety(candidate.label) and not is_prohibition(statement):
            values[place] = own
    result = list(candidates)
    for place, density in densities.items():
        result[place] = replace(result[place], density=density, tier=1 if place in outdated else result[place].tier)
    return result
