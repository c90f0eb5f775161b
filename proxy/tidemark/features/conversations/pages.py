"""Declares what is read of stored conversations: frozen values, which an endpoint or the console renders.

``features/conversations/conversation_json.py`` renders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tidemark.core.bill import BillFigures
from tidemark.core.conversation.records import ConversationRecord, MessageRecord
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.cursors import cursor_of, place_of
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen

_MAX_POSITION = 2**53
"""A larger number is no position. No list is that long, and an index takes no number that is much larger."""
MessageState = Literal["in_context", "summarized", "unreadable"]
"""Whether the model still sees a message, sees a summary in its place, or the record cannot be read."""


@frozen
class Page:
    """The part of a list that a client asks for."""

    limit: int
    cursor: str | None = None

    def start(self) -> int:
        """Return the first position of the page, in a list that is counted from 1.

        :raises InvalidRequest: the cursor belongs to no such list
        """
        if self.cursor is None:
            return 1
        (start,) = place_of(self.cursor, (int,))
        if not isinstance(start, int) or not 1 <= start <= _MAX_POSITION:
            raise InvalidRequest("'cursor' must be the 'next_cursor' of the page before, as it came.", param="cursor")
        return start


@frozen
class ProviderCount:
    """Input and output tokens by a provider's own count."""

    input_tokens: int
    output_tokens: int


@frozen
class UsageTotal:
    """The sum of what providers counted in all turns of a conversation, for monitoring only (FR-1.1.5, FR-4.1.1)."""

    answers: int
    """Answers with a count; an upstream may send none."""
    input_tokens: int
    output_tokens: int


@frozen
class MessageEntry:
    """A stored message, and whether the model still sees it."""

    message: MessageRecord
    state: MessageState
    shown: bytes
    """The message in the form of chat completions: its own bytes, unless it came in another dialect."""
    count: ProviderCount | None = None
    """The provider's count, if the message is an answer (FR-4.1.1)."""
    original: bytes = b""
    """The message as it came first, if the client repeats it in other words since (docs/adr/0019)."""


@frozen
class ConversationList:
    """A page of conversations, last used first."""

    conversations: tuple[ConversationRecord, ...]
    unreadable: tuple[str, ...]
    """Ids of the conversations whose records cannot be read."""
    next_cursor: str | None


@frozen
class ConversationPage:
    """A conversation, and a page of its messages."""

    record: ConversationRecord
    summarized_messages: int
    usage: UsageTotal
    messages: tuple[MessageEntry, ...]
    next_cursor: str | None
    bill: BillFigures | None = None
    """What its turns cost since it came near its limit; None if it did not."""


@frozen
class HistoryPage:
    """A conversation and a page of its messages, without the providers' counts."""

    record: ConversationRecord
    summarized_messages: int
    messages: tuple[MessageEntry, ...]
    next_cursor: str | None


@frozen
class SummaryEntry:
    """A summary, and the messages that it stands for (S0-3, FR-4.2.1)."""

    summary: PrefixSummary
    message_ids: tuple[str, ...] | None
    """The ids of the messages, in order; None if some have expired."""
    in_use: bool
    versions: tuple[PrefixSummary, ...] = ()
    """The texts that stood for the same messages before and were replaced, oldest first."""


@frozen
class SummaryInUse:
    """A summary that a conversation's requests use, or could use, and what it means for them. Tokens are exact."""

    conversation: str
    summary: PrefixSummary
    text_tokens: int
    """Tokens of the text, without the frame of the summary message."""
    max_text_tokens: int
    """The most tokens that an edited text may have."""
    tokens_before: int
    """Tokens of the conversation without a summary."""
    tokens_after: int


@frozen
class SummaryPreview:
    """A summary that was made anew and is not in use."""

    id: str
    seconds: int
    """How long it can be put into use."""
    shown: SummaryInUse
    present: SummaryInUse
    """The one that it was made to replace."""


@frozen
class SummaryPage:
    """A page of a conversation's summaries, oldest first."""

    conversation: str
    summaries: tuple[SummaryEntry, ...]
    next_cursor: str | None


@frozen
class SummaryTexts:
    """The texts that stand for a conversation's first messages, and those that did."""

    present: PrefixSummary | None
    """The summary in use."""
    earlier: tuple[PrefixSummary, ...]
    """Earlier summaries, and the texts that others replaced; newest first."""
    count: int
    """How many earlier ones there are, those that were not asked for too."""


@frozen
class SearchHit:
    """A message that a search matched."""

    entry: MessageEntry
    snippet: str
    score: float


@frozen
class SearchPage:
    """A page of a search in one conversation, best match first."""

    conversation: str
    hits: tuple[SearchHit, ...]
    next_cursor: str | None


@frozen
class ContextSnapshot:
    """The messages that a model sees of a conversation, or saw at one of its messages."""

    conversation: str
    at: int
    """Position of the message; the last one for what the model sees now."""
    exact: bool
    """Whether these are exactly the messages that were, or would be, forwarded."""
    model: str
    messages: tuple[bytes, ...]
    """The JSON of each message, as it is forwarded."""
    summarized_messages: int
    tokens: int | None = None
    """Tokens of the messages; None for an earlier message."""
    limit: int | None = None
    """The limit of the model, in tokens; None for an earlier message."""


@frozen
class RequestForms:
    """Both forms of a request, as far as what is stored shows them."""

    client_messages: tuple[bytes, ...]
    """The JSON of each message as it came."""
    forwarded: ContextSnapshot


@frozen
class ImportedConversation:
    """A conversation that was imported."""

    id: str
    record: ConversationRecord | None
    """None if it was deleted before it could be read."""


def cursor_after(start: int, entries: Sequence[object], *, more: bool) -> str | None:
    """Return the cursor of the page after ``entries``, or None for the last page.

    :param start: the position of the first entry, counted from 1
    """
    return cursor_of(start + len(entries)) if more else None
