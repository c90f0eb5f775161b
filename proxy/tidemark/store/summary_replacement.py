"""Replaces the stored summary of a prefix, for compaction by hand and people. Other writers leave the first one.

The compactor (``compaction/storing.py``) and the feature ``summaries`` call it.
"""

from __future__ import annotations

from tidemark.core.conversation.prefix import split_id
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.errors import SummaryConflict
from tidemark.core.frozen import frozen
from tidemark.core.ports import Redactor
from tidemark.store import keys, scripts
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask
from tidemark.store.lifetimes import Lifetimes
from tidemark.store.redacted_summary import redacted_summary
from tidemark.store.references import pack_reference, recipe_digest

MAX_VERSIONS = 32
"""Replaced summaries that are stored for a conversation; of more the oldest goes."""
MARK_SECONDS = 3600
"""How long a replaced text is remembered. No summary takes longer to be made."""


@frozen
class RedisSummaryReplacement:
    """Replaces summaries in Redis; it has no state.

    :param lifetimes: how long unused conversations are stored
    """

    ask: Ask
    codec: Codec
    lifetimes: Lifetimes
    redactor: Redactor | None = None

    async def replace(
        self,
        tenant: str,
        conversation: str,
        summary: PrefixSummary,
        present: PrefixSummary | None = None,
        *,
        owner: str = "",
    ) -> None:
        """Store a summary of a prefix of ``conversation`` in place of any other one, which stays as an earlier version.

        :param present: the one that must stand there now; None for any
        :raises SummaryConflict: another one stands there, or the conversation was forgotten
        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        summary = await redacted_summary(summary, self.redactor)
        await self.codec.prepare(owner or tenant)
        expected = b"" if present is None else await self._packed(family, present)
        ttl, packed = self.lifetimes.of(tenant).idle, self.codec.pack_summary(summary, owner or tenant, family)
        reference = pack_reference(summary)
        arguments = (own, ttl, summary.created_at, tenant, reference, packed, expected, MAX_VERSIONS, MARK_SECONDS)
        prefix = keys.family_prefix(family)
        replaced = await self.ask("EVAL", scripts.REPLACE_SUMMARY.source, 1, prefix, b"", 0, *arguments)
        if present is not None and replaced != 1:
            raise SummaryConflict

    async def _packed(self, family: str, present: PrefixSummary) -> bytes:
        """Return the bytes of the summary that stands for a prefix.

        :raises SummaryConflict: it is not ``present``
        """
        recipe = recipe_digest(present.recipe)
        at = keys.summary(family, recipe, present.prefix, present.absorbed, waiting=False)
        packed: bytes | None = await self.ask("GET", at)
        if packed is None or self.codec.readable_summary(packed, family) != present:
            raise SummaryConflict
        return packed
