"""Declares how stored messages are read back, whichever dialect they came in.

The store has each in the bytes in which it came, without a mark.
``dialects/message_formats.py`` implements it, the pipeline and the features use it. So a conversation that came in one
dialect goes on in another, and whoever reads the store needs to know none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import RequestFormat

NO_CONTENT = "(no content)"
"""Stands for a stored message without any content in a dialect whose servers refuse one; Claude Code has the same."""


class MessageFormats(Protocol):
    """The formats of stored messages, of every dialect. It reads them in any thread."""

    def read(self, raws: Sequence[bytes]) -> Sequence[Message]:
        """Read stored messages; each is one.

        :raises InvalidRequest: one is of no dialect
        """
        ...

    def is_native(self, raw: bytes, dialect: RequestFormat) -> bool:
        """Return whether a stored message has the form of this dialect; a plain text has that of several."""
        ...

    def sendable(self, raws: Sequence[bytes], dialect: RequestFormat) -> list[bytes]:
        """Return stored messages as a client of ``dialect`` would send them; one of another dialect is written anew.

        One that the dialect has no place for is empty: only a system message can be.

        :raises InvalidRequest: one is of no dialect
        """
        ...
