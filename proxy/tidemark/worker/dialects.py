"""Lists the dialects that are served.

``stored.py`` and features take the dialects from here; nothing else names one.
"""

from __future__ import annotations

from tidemark.core.conversation.request import Dialect
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"


def build_dialects() -> dict[str, Dialect]:
    """Return the dialects, by the path that each is served at. A new dialect is one line here."""
    return {CHAT: ChatDialect(), RESPONSES: ResponsesDialect(), MESSAGES: MessagesDialect()}
