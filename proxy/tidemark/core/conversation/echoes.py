"""Changed echoes: finds the stored messages that a request repeats in other words.

Clients take reasoning out of an answer, change its line ends, cut it off or add a footer before they send it back.
Agents leave out what old tools returned, and take reminders out of earlier questions. The step ``identify`` asks this
module when a request leaves its stored conversation (docs/adr/0019).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen

_WINDOW = 1_000
"""Characters of both ends of a text that are compared. The comparison takes a millisecond."""
_READ = 8 * _WINDOW
"""Characters of each end from which reasoning is taken out before that."""
_GRAM = 8
"""Characters of a piece. Texts of one language share many shorter pieces by chance."""
_TELLING = 40
"""Pieces of a text that can tell one answer from another. A text of fewer is a greeting, or the mark of a cut."""
_OTHER = 0.1
"""Two texts that share a smaller part of their pieces are two answers, and not one that was changed."""
_SAME = 0.5
"""Of a window of the conversation, an answer that shares this part of its pieces is the stored one."""
_REASONING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_REASONING_END = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_Sketch = tuple[str, frozenset[str]]
"""Both ends of a text, and their pieces."""


@frozen
class DivergingBranch:
    """A stored conversation that shares its beginning with a request, and has other messages after it."""

    conversation: str
    count: int
    """How many messages it has."""
    tip: bytes
    """The chain hash over all of them."""
    raws: tuple[bytes, ...]
    """Its messages after those that it shares with the request."""
    turns: int
    """How many requests of it were answered or broken off; those of its parents are not among them."""


@frozen
class DivergingBranches:
    """The stored conversations that go on otherwise after a request's first messages, newest first."""

    branches: Sequence[DivergingBranch]
    has_one_answer: bool
    """Whether the store has one answer alone after these messages: no regeneration, and none that was not looked at."""


@frozen
class ChangedEcho:
    """A conversation some of whose messages a request repeats in other words.

    The write of the turn puts the request's words in their place, if the conversation is still the same.
    """

    conversation: str
    count: int
    """How many messages the conversation had when the request came."""
    tip: bytes
    """The chain hash over all of them."""
    positions: tuple[int, ...]
    """The positions of the changed messages; 1 is the first message that is no system message."""


def repeated_branch(
    messages: Sequence[Message], branches: Sequence[Sequence[Message]]
) -> tuple[int, tuple[int, ...]] | None:
    """Find the branch that a request goes on with, although it repeats some of its answers in other words.

    The request must have everything that the branch was asked with, at the same places, and something after it. Of a
    question before the same answer a part is enough, and the result of a call may be another text. Of several branches
    the one with the most similar answers is taken, of equally similar ones the first.

    :param messages: the request's messages after the shared ones; none is a system message
    :param branches: the messages after the shared ones of stored conversations, newest conversation first
    :returns: the branch's index and the places in ``messages`` of the changed ones; None if no branch is meant
    """
    best: tuple[int, tuple[int, ...]] | None = None
    highest = -1.0
    sketches: dict[int, _Sketch] = {}
    for index, branch in enumerate(branches):
        places = _changed_places(messages, branch)
        if not places:
            continue
        compared: list[float] = []
        answers = [place for place in places if branch[place].role == "assistant"]
        for place in {answers[0], answers[-1]} if answers else ():
            sketch = sketches.setdefault(place, _sketch(messages[place].text))
            compared.append(_similarity(branch[place], messages[place], sketch))
        compared = compared or [1.0]  # the calls tell that these are the same results
        likeness = min(compared)
        if likeness >= 0 and sum(compared) > highest * len(compared):
            best, highest = (index, places), sum(compared) / len(compared)
    return best


def only_branch(
    shared: Sequence[Message],
    messages: Sequence[Message],
    branches: Sequence[tuple[DivergingBranch, Sequence[Message]]],
    *,
    is_named: bool,
) -> tuple[int, tuple[int, ...]] | None:
    """Find the branch that a request goes on with, although the answers are nothing like the stored ones.

    A client may translate an answer, or send a few words in place of it. The texts cannot tell that from another
    answer, so there must be no other stored one, and what both have in common must tell the talk: an unchanged answer,
    or questions that nobody asked twice. A greeting is no such question.

    :param shared: the messages before the first changed answer; none is a system message
    :param messages: the request's messages after the shared ones
    :param branches: the branches, each with its messages after the shared ones; the store has no other answer
    :param is_named: whether the client named the conversation, so that all talks under the name are one
    :returns: as ``repeated_branch`` does
    """
    matches = [
        (index, places) for index, (_, branch) in enumerate(branches) if (places := _changed_places(messages, branch))
    ]
    if len(matches) != 1:
        return None
    index, places = matches[0]
    branch, stored = branches[index]
    unchanged = [*shared, *(message for place, message in enumerate(stored) if place not in places)]
    answers = sum(message.role == "assistant" for message in (*shared, *stored))
    is_meant = is_named or _tells_talk(unchanged, asked_once=branch.turns <= answers)
    return (index, places) if is_meant else None


def with_stored_answers(stored: Sequence[Message], incoming: Sequence[Message]) -> list[Message]:
    """Return a client's messages with stored answers in place of those that it repeats in other words.

    Stored history aligns the result with what is stored. A client may send any part of the conversation, so the message
    before an answer must be the stored one. An answer at the beginning is the one before the next message, or the
    newest one if the next message is new.
    """
    places: dict[bytes, int] = {message.digest: place for place, message in enumerate(stored)}
    messages = list(incoming)
    for index, message in enumerate(messages):
        if message.role != "assistant" or message.digest in places:
            continue
        if index:
            place = places.get(messages[index - 1].digest, -2) + 1
        else:
            place = places.get(messages[1].digest, len(stored)) - 1 if len(messages) > 1 else -1
        if not 0 <= place < len(stored) or stored[place].role != "assistant":
            continue
        if similarity(stored[place], message) >= _SAME:
            messages[index] = stored[place]
    return messages


def similarity(answer: Message, echo: Message) -> float:
    """Return which part of the shorter answer is in the longer one, from 0 to 1.

    It is -1 if they are two answers. Answers that call other tools are two, and so are texts that share nearly
    nothing although they are long enough to tell. Reasoning in the text, white space and letters' case do not count.
    """
    return _similarity(answer, echo, _sketch(echo.text))


def _similarity(answer: Message, echo: Message, of_echo: _Sketch) -> float:
    related = _share_calls(answer, echo)
    if related is False:
        return -1.0
    of_answer = _sketch(answer.text)
    if of_answer == of_echo or related:
        return 1.0
    (stored, pieces), (repeated, other_pieces) = of_answer, of_echo
    if not stored or not repeated:
        return 0.0
    least = min(len(pieces), len(other_pieces))
    part = len(pieces & other_pieces) / least if least else float(stored in repeated or repeated in stored)
    if part < _OTHER and least >= _TELLING:
        return -1.0
    return max(part, _common_beginning(stored, repeated) / min(len(stored), len(repeated)))


def _tells_talk(unchanged: Sequence[Message], *, asked_once: bool) -> bool:
    """Return whether messages that two talks have in common show that both are one.

    :param asked_once: whether each question was asked once, so that no answer to it was broken off
    """
    pieces: set[str] = set()
    for message in unchanged:
        if message.role == "assistant":
            if len(_sketch(message.text)[1]) >= _TELLING:
                return True
        elif asked_once and len(pieces) < _TELLING:
            pieces |= _sketch(message.text)[1]
    return len(pieces) >= _TELLING


def _changed_places(messages: Sequence[Message], branch: Sequence[Message]) -> tuple[int, ...]:
    """Return where a request changed a branch's messages; none if it was asked with anything else."""
    if not 0 < len(branch) < len(messages):
        return ()
    places: list[int] = []
    for place, stored in enumerate(branch):
        repeated = messages[place]
        if stored.digest == repeated.digest:
            continue
        if stored.role != repeated.role:
            return ()
        if stored.role == "assistant":
            is_echo = _share_calls(stored, repeated) is not False
        elif stored.role == "tool":
            is_echo = bool(stored.answers) and stored.answers == repeated.answers
        else:
            after = slice(place + 1, place + 2)
            is_echo = _lacks_addition(stored, repeated) and _are_equal(branch[after], messages[after])
        if not is_echo:
            return ()
        places.append(place)
    return tuple(places)


def _lacks_addition(stored: Message, repeated: Message) -> bool:
    """Return whether a client took out of a question what it had added before or after it, as agents do."""
    question = repeated.text.strip()
    return bool(question) and stored.media == repeated.media and stored.text.strip() != question in stored.text


def _are_equal(stored: Sequence[Message], repeated: Sequence[Message]) -> bool:
    return bool(stored) and [message.digest for message in stored] == [message.digest for message in repeated]


def _share_calls(answer: Message, echo: Message) -> bool | None:
    """Return whether both call one tool the same; None if one of them calls none.

    A client may number the calls anew, so the same arguments are the same call too.
    """
    if not answer.calls or not echo.calls:
        return None
    if {call.id for call in answer.calls if call.id} & {call.id for call in echo.calls}:
        return True
    return bool(
        {(call.name, _arguments(call.arguments)) for call in answer.calls}
        & {(call.name, _arguments(call.arguments)) for call in echo.calls}
    )


def _arguments(text: str) -> str:
    """Return arguments in one form; long ones, and what is no JSON, as they are."""
    if len(text) > _READ:
        return text
    try:
        return json.dumps(json.loads(text or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _sketch(text: str) -> _Sketch:
    """Return what counts of a text: both ends of a long one, without reasoning, with single spaces; and its pieces."""
    if len(text) <= 2 * _READ:
        significant = _REASONING.sub("", text).strip()
        head, tail = significant[:_READ], significant[-_READ:]
    else:
        head = _REASONING.sub("", text[:_READ]).strip()
        tail = _REASONING.sub("", _REASONING_END.sub("", text[-_READ:])).strip()
        head = head or tail
    if len(head) <= 2 * _WINDOW and head == tail:
        ends = [_normal(head)]
    else:
        ends = [_normal(head[: 2 * _WINDOW])[:_WINDOW], _normal(tail[-2 * _WINDOW :])[-_WINDOW:]]
    pieces = {end[at : at + _GRAM] for end in ends for at in range(len(end) - _GRAM + 1)}
    return " ".join(ends), frozenset(pieces)


def _normal(text: str) -> str:
    return " ".join(text.split()).casefold()


def _common_beginning(first: str, second: str) -> int:
    """Return how many characters two texts begin with in common."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))
