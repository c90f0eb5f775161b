"""Command messages: how a command and its answer are recognized and removed from a conversation.

The step ``commands`` (``pipeline/commands.py``) uses it. Clients send the whole history back, so a command and its
answer return with every later request. The answer carries a mark, and by it both are removed again before anything
is counted, recognized or forwarded. A command whose answer was lost is recognized by the user's next message. What
remains is, byte for byte, what a client without commands would have sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Sequence
from typing import Literal

from tidemark.core.conversation.digest import meaning
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest

Command = Literal["/context", "/summarize"]
COMMANDS: dict[str, Command] = {"/context": "/context", "/summarize": "/summarize"}
"""S2-5. A command is a whole message of the user, with white space around it at most."""
MAX_CHARACTERS = 100_000
"""A longer message is no command, whatever white space it has; a lookup of it would take milliseconds."""
_PURPOSE = b"tidemark: the mark of answers to commands, version 2"
_MARK_CHARACTERS = 16
"""Hex: 64 bits, so that no text carries a mark by chance."""


def mark_of(secret: bytes, fingerprint: bytes) -> str:
    """Return the mark that every answer to a caller's commands begins with.

    It is the same for all workers and replicas of one secret. Each caller has a mark of its own: otherwise anybody
    could ask for a mark and, through a text that a model repeats, make answers of others vanish from later requests.
    It is plain text, which every client sends back, of characters that all JSON encoders write alike. It stands at
    the beginning, so an answer that was cut short or reformatted behind it is still recognized.
    """
    digest = hmac.new(secret, _PURPOSE + fingerprint, hashlib.sha256).hexdigest()
    return f"[Tidemark {digest[:_MARK_CHARACTERS]}]"


def command_of(message: Message) -> Command | None:
    """Return the command that a message is, if it is one."""
    if message.role != "user" or message.media or message.calls:
        return None
    return COMMANDS.get(message.text.strip()) if len(message.text) < MAX_CHARACTERS else None


def command_in(messages: Sequence[Message]) -> tuple[Command, int] | None:
    """Return the command that a request asks for, and its place: only its newest message can be one."""
    for place in range(len(messages) - 1, -1, -1):
        if not messages[place].is_system:
            command = command_of(messages[place])
            return None if command is None else (command, place)
    return None


def is_free_of_commands(request: ModelRequest, mark: str) -> bool:
    """Return whether no message is a command or carries our mark: all that commands cost other requests.

    If a request continues another one, only its new messages are read.
    """
    hints = request.hints
    first_new = hints.shared_count if hints is not None and mark in hints.earlier.free_of_commands else 0
    for message in request.messages[first_new:] if first_new else request.messages:
        if message.role == "user":
            text = message.text
            if len(text) < MAX_CHARACTERS and text.strip() in COMMANDS and command_of(message) is not None:
                return False
        elif message.role == "assistant" and message.text.lstrip().startswith(mark):
            return False
    if hints is not None:
        hints.facts.free_of_commands.add(mark)
    return True


def command_places(request: ModelRequest, mark: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return the places of answers with their commands, and of commands whose answers were lost.

    The second ones are ours only if the model's commands are on; otherwise they are messages like any other.
    """
    answered = answered_places(request.messages, mark)
    return answered, unanswered_places(request.messages, mark) - answered


def answered_places(messages: Sequence[Message], mark: str) -> frozenset[int]:
    """Return the places of all answers, and of the commands before them.

    An answer belongs to the command before it as a bracket to the one that it closes: clients may ask once more
    within an exchange. An answer without its command goes as well: it was sent twice, or the command was edited.
    """
    places: set[int] = set()
    others: list[int] = []
    for place, message in enumerate(messages):
        if message.is_system:
            continue
        if message.role != "assistant" or message.calls or not message.text.lstrip().startswith(mark):
            others.append(place)
            continue
        places.add(place)
        if others and command_of(messages[others[-1]]):
            places.add(others.pop())
    return frozenset(places)


def unanswered_places(messages: Sequence[Message], mark: str) -> frozenset[int]:
    """Return the places of commands without an answer, and of answers that stopped before their mark was complete.

    A command that somebody else answered stays, and so does a command that is the newest message.
    """
    places: set[int] = set()
    command: int | None = None
    for place, message in enumerate(messages):
        if message.is_system:
            continue
        if command is not None and message.role == "user":
            places.add(command)
        elif command is not None and _is_stopped_answer(message, mark):
            places |= {command, place}
        command = place if command_of(message) else None
    return frozenset(places)


def _is_stopped_answer(message: Message, mark: str) -> bool:
    """Return whether a message is a beginning of our mark, or empty, and has neither calls nor audio."""
    if message.role != "assistant" or not mark.startswith(message.text.strip()):
        return False
    return message.digest == meaning("assistant", [message.text], (), answers="", name="", audio="")


def without_places(request: ModelRequest, places: Collection[int]) -> ModelRequest:
    """Return the request without the messages at these places; the very same one if there are none.

    :raises InvalidRequest: no other message is in it
    """
    if not places:
        return request
    if len(places) == len(request.messages):
        member = request.dialect.messages_member
        raise InvalidRequest(
            f"'{member}' must hold a message beside commands and their answers.", param=member, code="empty_array"
        )
    return request.dialect.without(request, places)
