"""Find the summaries that stand for a prefix of a stored conversation, and the one that is in use.

The readers of conversations ask this to say which messages the model still sees.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.errors import ModelNotFound
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import budget_for
from tidemark.core.ports import NO_CREDENTIAL, ChooseSummarizer, ModelCatalog, Upstream
from tidemark.store.conversations import RedisStore


@frozen(kw_only=True)
class StandingSummaries:
    """Reads summaries; holds no state of its own."""

    store: RedisStore
    upstream: Upstream
    catalog: ModelCatalog
    choose: ChooseSummarizer

    async def of(self, record: ConversationRecord) -> Sequence[PrefixSummary]:
        """Return the summaries that stand for a prefix of a conversation, oldest first; requests use no others."""
        return await self.store.summaries(record.id, standing=True)

    async def limit_of(self, model: str, max_output_tokens: int | None) -> int | None:
        """Return the most tokens that may be forwarded to a model; None if it is not served.

        :param max_output_tokens: the longest reply that a request asks for; None if it names none
        """
        try:
            route = await self.upstream.resolve(model)
        except ModelNotFound:
            return None
        return budget_for(await self.catalog.profile(route, NO_CREDENTIAL), max_output_tokens).limit

    async def in_use(self, record: ConversationRecord) -> PrefixSummary | None:
        """Return the summary that the next request would use; the longest one if the model is not served."""
        candidates = [summary for summary in await self.of(record) if summary.covered < record.message_count]
        if not candidates:
            return None
        recipe: SummaryRecipe | None = None
        try:
            route = await self.upstream.resolve(record.model)
            recipe = self.choose(await self.catalog.profile(route, NO_CREDENTIAL), route).recipe
        except ModelNotFound:
            pass
        usable = [summary for summary in candidates if recipe is None or summary.recipe == recipe]
        return max(usable, key=lambda summary: (summary.covered, summary.created_at), default=None)
