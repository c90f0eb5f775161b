"""The messages on the page of a conversation: how each is shown, and which ones an open page gets anew.

``conversations.py`` asks for them. An open page names the last message that it shows, and gets those after it. The id
of a message is a hash of all messages before it too, so a page never goes on with those of another history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from tidemark.console.texts import described_part
from tidemark.core.cursors import cursor_of
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller
from tidemark.features.conversations.conversation_reader import ConversationReader
from tidemark.features.conversations.pages import HistoryPage, MessageEntry, Page

MESSAGES = 5000
"""Messages of one page of a conversation; a browser lays out only those that are in view."""
MESSAGES_BYTES = 4_000_000
"""Bytes of the messages of one page; one message at least is shown."""
RECENT = 30
"""Messages of the page of what the model sees, if its address names no place."""

_GROWN = 2 * MESSAGES
"""Messages of a page that has grown while it was open; "Later messages" leads on."""
_MARK = re.compile(r"(\d{1,9})\.([0-9a-f]{8,64})\.(\d{1,9})\.([01])", re.ASCII)
_ID_CHARACTERS = 16


MessageContent = tuple[str, str, Sequence[str], Sequence[str]]
"""A message's role, its text, its calls and its other parts."""


@frozen
class ShownMessage:
    """A message as the page shows it."""

    entry: MessageEntry
    role: str
    text: str
    calls: Sequence[str] = ()
    """What is folded: names and arguments."""
    attachments: Sequence[str] = ()
    """What is only named: images, audio, files."""


@frozen
class ShownHistory:
    """The messages of a page, or those that an open page gets anew."""

    page: HistoryPage
    entries: Sequence[MessageEntry]
    first: int
    """The position of the page's first message, also if ``entries`` goes on from a later one."""
    last: int
    last_id: str
    next_cursor: str | None
    is_continued: bool
    """Whether the entries follow those that the visitor shows."""
    is_open: bool
    """Whether the page goes on with messages that are still to come."""

    @property
    def mark(self) -> str:
        """Return what changes with the messages of the page, and what an open page is continued by."""
        return f"{self.last}.{self.last_id[:_ID_CHARACTERS]}.{self.page.summarized_messages}.{int(self.is_open)}"


async def read_history(
    reading: ConversationReader,
    conversation: str,
    caller: Caller | None,
    cursor: str | None,
    known: str,
    *,
    before: str | None = None,
    in_context: bool = False,
    is_wanted: bool = True,
) -> ShownHistory:
    """Read the messages of a page.

    :param caller: None for the operator
    :param cursor: where the page begins; without one it ends with the newest message
    :param before: without ``cursor``: what the page ends before
    :param known: the mark of the page that the visitor has open; empty for one who opens it
    :param in_context: whether the page has only messages that the model still sees
    :param is_wanted: whether any message is needed
    :raises ConversationNotFound: there is none of this id
    :raises InvalidRequest: the cursor is none of this list
    """
    start, end, mark = Page(1, cursor).start(), Page(1, before).start(), _MARK.fullmatch(known)
    page = await reading.history(conversation, caller, Page(0))
    if not is_wanted:
        return _history(page, (), start, None)
    covered, count = page.summarized_messages, page.record.message_count
    least = covered + 1 if in_context else 1
    if mark is not None and in_context and int(mark[3]) != covered:
        mark = None  # some of what is shown has left the context
    end = min(max(end, least + 1), count + 1) if before else count + 1
    most = RECENT if in_context else MESSAGES
    first = max(least, start if cursor else end - most)
    if mark is not None:
        continued = await _continued(reading, conversation, caller, first, mark)
        if continued is not None:
            return continued
    # What has come meanwhile is of the newest page, too.
    size = MESSAGES if cursor else end - first if end <= count else _GROWN
    page = await reading.history(conversation, caller, Page(size, cursor_of(first)))
    if cursor:
        entries, next_cursor = within_bytes(page)
        return _history(page, entries, first, next_cursor)
    entries = newest_within_bytes(page)
    return _history(page, entries, entries[0].message.position if entries else first, page.next_cursor)


async def _continued(
    reading: ConversationReader, conversation: str, caller: Caller | None, first: int, mark: re.Match[str]
) -> ShownHistory | None:
    """Return what follows the last message of an open page; None if the history is another one by now."""
    last, is_open = int(mark[1]), mark[4] == "1"
    count = max(first + _GROWN - 1 - last, 0) if is_open else 0
    if last < first:
        return None
    page = await reading.history(conversation, caller, Page(count + 1, cursor_of(last)))
    if not page.messages or page.messages[0].message.message_id[:_ID_CHARACTERS] != mark[2]:
        return None
    entries, next_cursor = within_bytes(page)
    history = _history(page, entries, first, next_cursor)
    return replace(history, entries=entries[1:], is_continued=True, is_open=is_open and history.is_open)


def _history(page: HistoryPage, entries: Sequence[MessageEntry], first: int, next_cursor: str | None) -> ShownHistory:
    last = entries[-1].message if entries else None
    position, identifier = (last.position, last.message_id) if last is not None else (0, "")
    return ShownHistory(
        page, entries, first, position, identifier, next_cursor, is_continued=False, is_open=not next_cursor
    )


def within_bytes(page: HistoryPage) -> tuple[Sequence[MessageEntry], str | None]:
    """Return as many messages as a page may have bytes of, and the cursor of the next one."""
    sizes = accumulate(len(entry.shown) for entry in page.messages)
    count = max(sum(size <= MESSAGES_BYTES for size in sizes), 1)
    if count >= len(page.messages):
        return page.messages, page.next_cursor
    return page.messages[:count], cursor_of(page.messages[count].message.position)


def newest_within_bytes(page: HistoryPage) -> Sequence[MessageEntry]:
    """Return the last messages, as many as a page may have bytes of; one at least."""
    sizes = accumulate(len(entry.shown) for entry in reversed(page.messages))
    return page.messages[-max(sum(size <= MESSAGES_BYTES for size in sizes), 1) :]


def shown(entry: MessageEntry) -> ShownMessage:
    """Return a stored message as the page shows it: its text, and the other things by their kinds."""
    if entry.state == "unreadable":
        return ShownMessage(entry, "unreadable", "This message cannot be read.")
    return ShownMessage(entry, *content_of(entry.shown))


def content_of(raw: bytes) -> MessageContent:
    """Return the role, the text, the calls and the other parts of a message of the chat dialect."""
    message = json.loads(raw)
    content = message.get("content")
    texts = [content] if isinstance(content, str) else []
    attachments: list[str] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict):
            attachments.append(described_part(part))
    calls: list[str] = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        calls.append(f"{function.get('name')}({function.get('arguments', function.get('input', ''))})")
    return str(message.get("role")), "\n".join(texts), calls, attachments
