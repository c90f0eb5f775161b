"""Measures what the user's own conversations have left when a whole Tidemark forwards them in a small window.

The facts are those of loss receipts, as in ``exported``. One that a later message names again tells most: there the
talk goes on with something that its older messages say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from tidemark.core.conversation.messages import Message
from tidemark.core.errors import TidemarkError
from tidemark.core.frozen import frozen
from tidemark.core.phrases import Reading
from tidemark.core.receipt import DETAIL_KINDS, DetailKind
from tidemark.fidelity.exported import ExportedConversation
from tidemark.fidelity.replaying import ConversationReplay, Forwarded, text_of, turns_of
from tidemark.summarizers.compared_text import ComparedText
from tidemark.summarizers.ledger import EXACT_KINDS
from tidemark.summarizers.receipts import details_of
from tidemark.summarizers.sentences import words_of

VALUES = (*EXACT_KINDS.values(), "names")
"""The kinds that a later message names again; nobody repeats a rule."""
Value = tuple[DetailKind, str]
Counted = Counter[tuple[DetailKind, bool]]
"""Facts by kind, and whether they stood in the request."""


@frozen
class Share:
    """How many facts there were, and how many of them stood in the request."""

    facts: int = 0
    survivors: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.facts + other.facts, self.survivors + other.survivors)


@frozen
class ProductionFigure:
    """What stood in the forwarded requests, of one kind of facts or of all."""

    kind: str
    last: Share
    """Of the facts of a whole conversation, in its last request."""
    asked: Share
    """Of the values that only left-out messages say, and that a user's message named again, in the rest of its
    request."""
    answered: Share
    """The same of those that a reply named, and the message before it did not."""


@dataclass
class ProductionMeasurement:
    """The sums over conversations."""

    parts: dict[str, ProductionMeasurement] = field(default_factory=dict)
    """What was measured of each conversation, by its identifier."""
    compactions: int = 0
    tokens: int = 0
    """Of the last requests."""
    whole_tokens: int = 0
    """Of the same requests without Tidemark."""
    uncompacted: int = 0
    """How many conversations always fitted; they are in no other sum."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why a conversation could not be sent to its end, by its identifier."""
    last: Counted = field(default_factory=Counter)
    asked: Counted = field(default_factory=Counter)
    answered: Counted = field(default_factory=Counter)

    def of_conversations(self, identifiers: Collection[str]) -> ProductionMeasurement:
        """Return the sums over some of the conversations."""
        sums = ProductionMeasurement(uncompacted=self.uncompacted, failures=self.failures)
        for identifier, part in self.parts.items():
            if identifier in identifiers:
                sums.add(identifier, part)
        return sums

    def add(self, identifier: str, other: ProductionMeasurement) -> None:
        """Add the sums of one conversation."""
        self.parts[identifier] = other
        self.compactions += other.compactions
        self.tokens += other.tokens
        self.whole_tokens += other.whole_tokens
        self.last += other.last
        self.asked += other.asked
        self.answered += other.answered

    def figures(self) -> list[ProductionFigure]:
        """Return the figure of all facts, and those of the kinds of which something was said."""
        kinds = [
            ProductionFigure(kind, *(_share(counts, kind) for counts in (self.last, self.asked, self.answered)))
            for kind in DETAIL_KINDS
        ]
        said = [figure for figure in kinds if figure.last.facts]
        shares = [sum((getattr(figure, name) for figure in said), Share()) for name in ("last", "asked", "answered")]
        return [ProductionFigure("all", *shares), *said]


def _share(counts: Counted, kind: DetailKind) -> Share:
    return Share(counts[kind, True] + counts[kind, False], counts[kind, True])


async def measure_production(
    replay: ConversationReplay,
    conversations: Iterable[ExportedConversation],
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> ProductionMeasurement:
    """Send each conversation, and compare what is forwarded with what was said.

    :param advance: takes the turns that were sent since the last call
    """
    sums = ProductionMeasurement()
    for conversation in conversations:
        try:
            one = await _measured(replay, conversation, advance)
        except TidemarkError as error:
            sums.failures[conversation.id] = str(error)
            continue
        if one.compactions:
            sums.add(conversation.id, one)
        else:
            sums.uncompacted += 1
    return sums


async def _measured(
    replay: ConversationReplay, conversation: ExportedConversation, advance: Callable[[int], None]
) -> ProductionMeasurement:
    """Send one conversation.

    :raises TidemarkError: Tidemark refused a request, or a message cannot be read
    """
    one, covered, last = ProductionMeasurement(), 0, None
    recorded = [json.loads(message) for message in conversation.messages]
    spoken = _Spoken((await replay.read(conversation.body)).messages)
    for place in turns_of(recorded):
        body = replace(conversation, messages=conversation.messages[:place]).body
        forwarded = await replay.send(body, recorded[place], conversation.id)
        advance(1)
        one.compactions += forwarded.left_out > covered
        covered = max(covered, forwarded.left_out)
        if covered:
            asked, answered = spoken.named_again(place, forwarded)
            one.asked += asked
            one.answered += answered
            last = place, body, forwarded
    if last is not None:
        place, body, forwarded = last
        history = details_of(spoken.messages[:place], "", f"{forwarded.text}\n{forwarded.messages[-1]}")
        one.last.update((detail.kind, detail.survival != "dropped") for detail in history)
        one.tokens, one.whole_tokens = await replay.count(forwarded.body), await replay.count(body)
    return one


class _Spoken:
    """The messages of a conversation. Mutable: what was read of them, and the values of those left out last."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self._reading = Reading()
        self._left_out, self._values = 0, frozenset[Value]()

    def named_again(self, place: int, forwarded: Forwarded) -> tuple[Counted, Counted]:
        """Return the values that only left-out messages say, and that a turn names.

        :param place: the reply's
        :return: those of a user's message, and those that the reply adds to the message before it
        """
        older = self.messages[: place - 1]
        said, systems = [[each for each in older if each.is_system == is_system] for is_system in (False, True)]
        left_out, remaining = said[: forwarded.left_out], [*systems, *said[forwarded.left_out :]]
        if len(left_out) != self._left_out:
            details = details_of(left_out, "", "", self._reading)
            values = ((detail.kind, detail.text) for detail in details if detail.kind in VALUES)
            self._left_out, self._values = len(left_out), frozenset(values)
        newest, reply = self.messages[place - 1], self.messages[place]
        asked = _standing(self._values, text_of(newest))
        answered = _standing(self._values - asked, text_of(reply))
        named = asked | answered
        gone = named - _standing(named, "\n".join(map(text_of, remaining)))
        present = _standing(gone, forwarded.text)
        counted = [
            Counter((value[0], value in present) for value in values & gone)
            for values in (asked if newest.role == "user" else set(), answered)
        ]
        return counted[0], counted[1]


def _standing(values: AbstractSet[Value], text: str) -> AbstractSet[Value]:
    """Return the values that stand in a text, compared as by a loss receipt."""
    if not values:
        return values
    compared = ComparedText(text)
    return {
        (kind, value)
        for kind, value in values
        if (compared.has_phrase(words_of(value)) if kind == "names" else compared.has_wording(value, words_of(value)))
    }
