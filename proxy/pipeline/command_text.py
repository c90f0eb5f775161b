"""Commands: a last message that Tidemark answers itself, and how what was said so is kept out of the conversation.

Between the edge, which parses a request, and the road. Clients send the whole history back, so a command and its
answer return with every later request; the answer carries a mark, and by it both are taken out again before anything
is counted, recognized or forwarded. A command whose answer was lost on the way is known by the user's next words. What
is left is to the byte what a client without commands would have sent.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from proxy.core.conversation.messages import Message, ModelRequest, render_body
from proxy.core.errors import InvalidRequest
from proxy.dialects.chat.message import parse_message

Command = Literal["/context", "/summarize"]
COMMANDS: dict[str, Command] = {"/context": "/context", "/summarize": "/summarize"}
"""S2-5. A whole message of the user, exactly, white space around it aside."""
MOST_CHARACTERS = 100_000
"""A longer message is no command, whatever white space it is made of; looking it up would take milliseconds."""
_PURPOSE = b"tidemark: the mark of answers to commands, version 2"
_MARK_CHARACTERS = 16
"""Hex: 64 bits, so that no text carries a mark by chance."""
_NOTE = "Tidemark answers this itself; the model sees neither the command nor this answer."


def mark_of(secret: bytes, fingerprint: bytes) -> str:
    """What every answer to a caller's commands begins with; the same for all workers and replicas of one secret.

    Each caller has a mark of its own. By another one's, which anybody can ask for, a text that a model repeats could
    make its answer vanish from later requests.

    It is plain text, which every client sends back, of characters that no JSON encoder writes in another way. It holds
    for any answer as a whole, so one that was cut short or reformatted behind it is still known.
    """
    digest = hmac.new(secret, _PURPOSE + fingerprint, hashlib.sha256).hexdigest()
    return f"[Tidemark {digest[:_MARK_CHARACTERS]}]"


def command_of(message: Message) -> Command | None:
    """The command that a message is, if it is one."""
    if message.role != "user" or message.media or message.calls:
        return None
    return COMMANDS.get(message.text.strip()) if len(message.text) < MOST_CHARACTERS else None


def command_in(messages: Sequence[Message]) -> tuple[Command, int] | None:
    """The command that a request asks for, and its place: only its newest message can be one."""
    for place in range(len(messages) - 1, -1, -1):
        if not messages[place].is_system:
            command = command_of(messages[place])
            return None if command is None else (command, place)
    return None


def quiet(request: ModelRequest, mark: str) -> bool:
    """Whether no message is a command or bears our mark: all that commands cost a request without them.

    Where a request continues another, only its new messages are read.
    """
    lineage, key = request.lineage, ("quiet", mark)
    known = lineage.known if lineage is not None and lineage.before.get(key) else 0
    heard = False
    for message in request.messages[known:] if known else request.messages:
        if message.role == "user":
            text = message.text
            heard = len(text) < MOST_CHARACTERS and text.strip() in COMMANDS and command_of(message) is not None
        elif message.role == "assistant":
            heard = message.text.lstrip().startswith(mark)
        if heard:
            break
    if lineage is not None:
        lineage.found[key] = not heard
    return not heard


def exchanges(request: ModelRequest, mark: str) -> tuple[frozenset[int], frozenset[int]]:
    """The places of what was said by commands: answers with the commands that they answer, and what lost its answer.

    The second are ours only where the model's commands are on; without them they are messages like any other.
    """
    gone = answered(request.messages, mark)
    return gone, unanswered(request.messages, mark) - gone


def answered(messages: Sequence[Message], mark: str) -> frozenset[int]:
    """The places of all answers, and of the commands before them.

    An answer belongs to the command before it, as a bracket to the one that it closes: clients may ask once more
    within an exchange. One without its command goes as well: it was sent twice, or the command was edited or cut off.
    """
    gone: set[int] = set()
    kept: list[int] = []
    for place, message in enumerate(messages):
        if message.is_system:
            continue
        if message.role != "assistant" or message.calls or not message.text.lstrip().startswith(mark):
            kept.append(place)
            continue
        gone.add(place)
        if kept and command_of(messages[kept[-1]]):
            gone.add(kept.pop())
    return frozenset(gone)


def unanswered(messages: Sequence[Message], mark: str) -> frozenset[int]:
    """The places of commands after which the user goes on, and of answers that were stopped before their mark was out.

    What anybody else answered stays, and so does a command that is the newest message.
    """
    gone: set[int] = set()
    command: int | None = None
    for place, message in enumerate(messages):
        if message.is_system:
            continue
        if command is not None and message.role == "user":
            gone.add(command)
        elif command is not None and _stopped(message, mark):
            gone |= {command, place}
        command = place if command_of(message) else None
    return frozenset(gone)


def _stopped(message: Message, mark: str) -> bool:
    """Whether it is a beginning of our mark, or empty, and nothing beside it: no call, no audio."""
    if message.role != "assistant" or not mark.startswith(message.text.strip()):
        return False
    return message.digest == parse_message(b"", {"role": "assistant", "content": message.text}, 0).digest


def without_exchanges(request: ModelRequest, gone: Collection[int]) -> ModelRequest:
    """The request as it would be had no command ever been asked; the very same one where none was.

    :raises InvalidRequest: nothing else is in it
    """
    if gone and len(gone) == len(request.messages):
        raise InvalidRequest(
            "'messages' must hold a message beside commands and their answers.", param="messages", code="empty_array"
        )
    return without(request, gone) if gone else request


def without(request: ModelRequest, gone: Collection[int]) -> ModelRequest:
    """The request without the messages at these places; what is left keeps its bytes, those between messages too."""
    before = request.fields["messages"]
    after = _cut(before, request.messages, gone)
    fields = {**request.fields, "messages": after}
    kept = tuple([message for place, message in enumerate(request.messages) if place not in gone])
    once = request.body.count(before) == 1  # else a member that nobody knows holds the same
    body = request.body.replace(before, after) if once else render_body(fields, {})
    return replace(request, body=body, fields=fields, messages=kept)


def _cut(array: bytes, messages: Sequence[Message], gone: Collection[int]) -> bytes:
    """A JSON array without some of its elements, each leaving with the comma and the white space before it."""
    ends: list[int] = [0]
    gaps: list[bytes] = []
    for message in messages:
        start = array.index(message.raw, ends[-1])
        gaps.append(array[ends[-1] : start])
        ends.append(start + len(message.raw))
    kept = [place for place in range(len(messages)) if place not in gone]
    pieces = [piece for place in kept for piece in (gaps[place], messages[place].raw)]
    return b"".join([gaps[0], *pieces[1:], array[ends[-1] :]])


@dataclass(frozen=True, slots=True)
class ContextFacts:
    """What ``/context`` tells (S2-6); tokens as the response headers tell them."""

    tokens: int
    """Of the whole conversation."""
    forwarded: int
    """Of what the model would get, were it asked now."""
    limit: int
    window: int
    messages: int
    covered: int
    """How many of the messages a summary stands for."""
    summaries: int | None
    """None where the store does not answer."""
    last_summary_at: float | None
    """Unix time, seconds."""
    strategy: str


def context_text(mark: str, facts: ContextFacts) -> str:
    """The answer to ``/context``."""
    share = f"{100 * facts.forwarded / facts.limit:.0f} %" if facts.limit else "all"
    if facts.summaries is None:
        summaries = "unknown, the store does not answer"
    elif facts.last_summary_at is None:
        summaries = f"{facts.summaries:,}"
    else:
        last = datetime.fromtimestamp(facts.last_summary_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        summaries = f"{facts.summaries:,}, the last one of {last}"
    lines = {
        "Total tokens": f"{facts.tokens:,}; the model gets {facts.forwarded:,}",
        "Limit": f"{facts.limit:,} of a window of {facts.window:,}",
        "Used": f"{share} of the limit",
        "Messages": f"{facts.messages:,}, of which a summary stands for {facts.covered:,}",
        "Summaries": summaries,
        "Strategy": facts.strategy,
    }
    return _answer(mark, "Context", lines)


def nothing_text(mark: str, *, covered: int, reason: str | None) -> str:
    """The answer to ``/summarize`` when all that is left has to stay.

    :param covered: how many messages a summary stands for already
    """
    return _answer(mark, "Not summarized", {"Messages that a summary stands for": f"{covered:,}"}, reason)


def summarized_text(mark: str, *, messages: int, before: int, after: int, strategy: str, warning: str | None) -> str:
    """The answer to ``/summarize`` when it is done."""
    lines = {
        "Messages summarized": f"{messages:,}",
        "Tokens": f"{before:,} before, {after:,} after",
        "Strategy": strategy,
    }
    return _answer(mark, "Summarized", lines, warning)


def failed_text(mark: str, reason: str, *, full: float | None = None, retry_seconds: float = 0.0) -> str:
    """The answer to ``/summarize`` when there is no summary, for somebody in a chat (FR-5.1.2).

    :param full: share of the limit that the conversation takes as it is; None where that is not known
    :param retry_seconds: for which the summarizer is left alone
    """
    when = f" in {math.ceil(retry_seconds)} s" if retry_seconds > 0 else ""
    share = "" if full is None else f" It takes {100 * full:.0f} % of what the model can be sent."
    lines = {
        "Reason": reason,
        "The conversation": f"nothing was changed or lost, and it can go on as it is.{share}",
        "To try again": f"send /summarize once more{when}. Without a summary, a conversation that gets too long for "
        "the model may not be answered any more.",
    }
    return _answer(mark, "Not summarized", lines)


def _answer(mark: str, title: str, lines: dict[str, str], warning: str | None = None) -> str:
    """Reads well as plain text and as Markdown."""
    told = [f"- {name}: {value}" for name, value in lines.items()]
    told += [f"- Note: {warning}"] if warning else []
    return "\n".join([f"{mark} {_NOTE}", "", f"{title}:", "", *told])
