"""Finds identifiers, paths and links in a model's summary that its conversation does not have.

``receipts.py`` reports them, and ``llm.py`` asks its model about them if the policy says so. No other
values are checked, because prose may round, add up and translate. No statement is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.receipt import Detail, DetailKind
from tidemark.summarizers.deadline import UNBOUNDED, Deadline
from tidemark.summarizers.details import FILES, IDENTIFIERS, LINKS, DetailFinder
from tidemark.summarizers.sentences import sentences

_KINDS: dict[str, DetailKind] = {FILES: "files", IDENTIFIERS: "identifiers", LINKS: "links"}
_VERSION = re.compile(r"v(?=\d)")
_PLACE = re.compile(r"^(?:\./|/)|/$")


def unsupported_details(
    text: str, messages: Sequence[Message], previous: str, deadline: Deadline = UNBOUNDED
) -> Iterator[Detail]:
    """Yield each identifier, path and link of a text that neither the messages nor the earlier summary have.

    :raises SummaryOverdue: the deadline has passed
    """
    candidates = list(_named_in(text, deadline))
    if not candidates:
        return
    source = "\n".join([previous, *_texts_of(messages)]).lower()
    for kind, value in candidates:
        deadline.check()
        if not any(form in source for form in _forms_of(value.lower())):
            yield Detail(_KINDS[kind], value, "unsupported")


def _named_in(text: str, deadline: Deadline) -> Iterable[tuple[str, str]]:
    finder = DetailFinder()
    values: dict[tuple[str, str], None] = {}
    for sentence in deadline.over(sentences(text)):
        details = finder.details(sentence)
        values |= dict.fromkeys(detail for detail in details if detail[0] in _KINDS)
    return values


def _texts_of(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        yield message.text
        for call in message.calls:
            yield f"{call.name} {call.arguments}".replace("\\/", "/")


def _forms_of(value: str) -> tuple[str, ...]:
    """Return the forms in which a value may stand: a version also without its v, a path without its root."""
    return value, value[1:] if _VERSION.match(value) else value, _PLACE.sub("", value)
