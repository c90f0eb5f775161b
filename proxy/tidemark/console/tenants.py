"""Recognizes tenants that sign in to the console with their keys, and judges these keys at each visit.

With ``auth.mode: keys`` a session lasts no longer than its key: it ends with a revocation, an expiry, or a rotation
once its grace has passed. The provider's keys of ``passthrough`` nobody here can judge.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import ClientError, KeysUnread
from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator
from tidemark.features.conversations.conversation_reader import ConversationReader
from tidemark.features.conversations.pages import Page
from tidemark.server.guarding import Visitor
from tidemark.server.keyed_auth import KeyTable


@frozen
class TenantSignIn:
    """Recognizes tenants; it has no state of its own."""

    auth: Authenticator
    table: KeyTable | None
    """The keys of the application; None in ``passthrough``."""
    reading: ConversationReader

    async def visitor_by(self, key: str) -> Visitor | None:
        """Return whose key this is; None if nobody's.

        A provider's key that owns nothing here is nobody's: otherwise any made-up key would be somebody.

        :raises StoreUnavailable: the store was asked for the key's conversations, and did not answer
        :raises KeysUnread: no keys could be read yet
        """
        try:
            caller = self.auth.caller([(b"authorization", b"Bearer " + key.encode())])
        except ClientError:
            return None
        if self.table is not None:
            return Visitor("tenant", "", caller.fingerprint, caller.grant, self.table.mark_of(key.encode()))
        owned = await self.reading.conversations(caller, Page(1))
        is_owner = bool(owned.conversations or owned.unreadable)
        return Visitor("tenant", "", caller.fingerprint) if is_owner else None

    def names(self) -> Mapping[str, str]:
        """Return the names of tenants by the owners of their conversations; a provider's keys have none."""
        tenants = self.table.tenants() if self.table is not None else {}
        return {owner_of(fingerprint): name for fingerprint, name in tenants.items()}

    def visitor_now(self, visitor: Visitor) -> Visitor | None:
        if self.table is None:
            return visitor
        try:
            fingerprint, grant = self.table.judge_mark(visitor.key_mark)
        except (ClientError, KeysUnread):
            return None
        return Visitor("tenant", "", fingerprint, grant, visitor.key_mark)
