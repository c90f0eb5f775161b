"""Lists the dialects that are served, and builds what asks all of them.

``parts.py`` and ``endpoints.py`` take the dialects from here; nothing else names one.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.core.conversation.request import Dialect
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.store.codec import Codec

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"


def build_dialects() -> dict[str, Dialect]:
    """Return the dialects, by the path that each is served at. A new dialect is one line here."""
    return {CHAT: ChatDialect(), RESPONSES: ResponsesDialect(), MESSAGES: MessagesDialect()}


def build_codec(dialects: Iterable[Dialect]) -> Codec:
    """Return the object that packs every stored value of a process; a cipher would be given to it here.

    :param dialects: those whose messages may be stored
    """
    first, *others = [dialect.is_message for dialect in dialects]
    return Codec(
        is_message=lambda raw: first(raw) or any(check(raw) for check in others),
        compress_messages=False,  # until the store's schema says that all workers can read it (``store/schema.py``)
    )
