"""Builds a stored conversation as a request that asks for a compaction, for the parts of this feature that summarize.

No client sends it, so this feature reads it from the store, and the pipeline identifies it as any other.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.core.conversation.keeping import is_without_text
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.request import Dialect
from tidemark.core.errors import ConversationConflict, ModelNotFound, StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.core.ports import NO_CREDENTIAL, Caller, Route, Upstream
from tidemark.pipeline.history_reader import HistoryReader, chain_of_stored
from tidemark.pipeline.steps import Pipeline
from tidemark.pipeline.values import Controls, ConversationPlace, RequestContext
from tidemark.store.request_heads import RedisRequestHeads


@frozen(kw_only=True)
class CompactionRequests:
    """Builds requests; holds no state of its own."""

    pipeline: Pipeline
    upstream: Upstream
    heads: RedisRequestHeads
    dialect: Dialect
    reader: HistoryReader

    async def context(
        self, record: ConversationRecord, route: Route, caller: Caller | None, retention: int | None = None
    ) -> RequestContext:
        """Return the stored conversation as a request that asks for a compaction.

        :param caller: None for the operator, who has no credential of an upstream
        :param retention: the newest tokens that stay, in place of the policy's
        :raises StoreUnavailable: the store did not answer in time
        :raises ConversationConflict: only hashes of its messages are stored
        """
        messages = await self.reader.messages(record)
        if any(is_without_text(message.raw) for message in messages):
            raise ConversationConflict(
                "Of this conversation's messages only hashes are stored (store.keep), so they cannot be summarized "
                "here. Its next request above the threshold will be."
            )
        heads = await self.heads.leading_system_messages(record.id)
        request = await self.reader.request(self.dialect, route.name, heads, messages)
        place = ConversationPlace(record.tenant, chain_of_stored(record.id, messages))
        controls = Controls(mode="force", retention=retention, by_hand=True)
        context = await self.pipeline.identify(request, caller or NO_CREDENTIAL, controls, place=place)
        if context.stored.degraded:
            raise StoreUnavailable("The conversation store does not answer.")
        return replace(context, conversation=record.id, owner=record.owner or "")

    async def can_ask(self, context: RequestContext, caller: Caller | None) -> bool:
        """Return whether the summarizer's model can be asked: by the caller's own key, or if it needs none.

        The operator has no key of an upstream, and neither has a tenant that has signed in to the console.
        """
        if caller is not None and caller.headers:
            return True
        route, summarizer_model = context.route, context.profile.policy.summarizer_model
        if summarizer_model not in ("", "auto"):
            try:
                route = await self.upstream.resolve(summarizer_model, by_operator=True)
            except ModelNotFound:
                return False
        return not await self.upstream.needs_callers_key(route)
