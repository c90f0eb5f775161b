"""Compacts a conversation for a client that carries its summary itself: ``POST /v1/responses/compact``.

It stands beside the pipeline and stores nothing. A provider that compacts itself is asked; for all others, the model's
own summarizer writes the summary, and it is sealed for the tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.compaction.compactor import Compactor
from proxy.compaction.values import CompactionOrder, Summarized, Trigger
from proxy.core.conversation.messages import Message
from proxy.core.conversation.prefix import chain_of
from proxy.core.conversation.request import Dialect, ModelRequest
from proxy.core.conversation.summary import render_summary
from proxy.core.errors import CompactionFailed, InvalidRequest
from proxy.core.planning.budget import budget_for
from proxy.core.planning.situation import Compact
from proxy.core.ports import Caller, ModelCatalog, Route, SummarySeal, TokenCounter, Upstream, UpstreamReply
from proxy.pipeline.continuing import ContinuedRequests
from proxy.pipeline.identify import tenant_of
from proxy.pipeline.shared_accounts import SharedAccounts


@dataclass(frozen=True, slots=True)
class SealedWindow:
    """What a client sends from now on in place of its conversation."""

    messages: Sequence[bytes]
    """The user's messages, byte for byte."""
    sealed: str
    """The summary of everything else, for this tenant only."""
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class SealedCompaction:
    """Compacts; it holds no state."""

    dialect: Dialect
    continued: ContinuedRequests
    upstream: Upstream
    catalog: ModelCatalog
    counter: TokenCounter
    compactor: Compactor
    """Stores nothing."""
    seal: SummarySeal
    accounts: SharedAccounts
    compacts_itself: Callable[[Route, Caller], bool]
    """Returns whether a route leads to a provider that has this endpoint."""

    async def compact(self, body: bytes, caller: Caller, path: str) -> SealedWindow | UpstreamReply:
        """Return the compacted conversation, or the provider's own answer.

        :param path: of the provider's endpoint, below its base URL
        :raises InvalidRequest, ModelNotFound, TokenizerFailed: there is nothing to compact, or no way to
        :raises ObjectNotFound: it names something of another tenant
        :raises StoreUnavailable: nobody knows at present whether it does
        :raises CompactionFailed: no summary could be made
        :raises UpstreamUnreachable, UpstreamTimedOut: the provider gave no answer
        """
        request = await self.continued.resolve(await self.dialect.parse(body), caller)
        route = await self.upstream.resolve(request.model)
        await self.accounts.check_mentioned(route, request, caller)
        if self.compacts_itself(route, caller):
            return await self._forwarded(request, route, caller, path)
        if request.continuation is not None and request.continuation.upstream_has:
            raise InvalidRequest(
                "The earlier messages of this conversation are the upstream's alone, so they cannot be compacted here. "
                "Send the whole conversation as 'input'.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return await self._compacted(request, route, caller)

    async def _forwarded(self, request: ModelRequest, route: Route, caller: Caller, path: str) -> UpstreamReply:
        if request.continuation is not None and request.continuation.received is not None:
            request = request.continuation.received
        model = route.upstream_model
        body = request.body if model == request.model else self.dialect.body_with_model(request, model)
        return await self.upstream.forward(route, "POST", path, body, caller)

    async def _compacted(self, request: ModelRequest, route: Route, caller: Caller) -> SealedWindow:
        profile = await self.catalog.profile(route, caller)
        count = await self.counter.count(request, route.upstream_model)
        tenant = tenant_of(caller, route)
        others = tuple(message for message in request.messages if not message.is_system)
        chain = chain_of(tenant, request.messages)
        planned = Compact(
            covered=len(others),
            messages=(*_earlier_summaries(request.messages), *others),
            previous=None,
            max_summary_tokens=budget_for(profile, None).max_summary,
            absorbed=(),
            replaced_tokens=count.total,
            rest_tokens=0,
            fallback=None,
        )
        order = CompactionOrder(planned, tenant, "", chain, profile, route, caller, "manual")
        result = await self.compactor.make(self.compactor.begin(order, Trigger.REQUEST))
        if not isinstance(result, Summarized):
            reason = "" if result is None else f": {result.reason}"
            error = CompactionFailed(f"No summary could be made{reason}.")
            error.retry_after = 0.0 if result is None else result.retry_after
            raise error
        text = render_summary(result.summary).text
        questions = [message for message in others if message.role == "user"]
        output_tokens = result.tokens + sum(
            self.counter.count_message(message, route.upstream_model) for message in questions
        )
        return SealedWindow(
            messages=[message.raw for message in questions],
            sealed=self.seal.seal(tenant, text),
            input_tokens=count.total,
            output_tokens=output_tokens,
        )


def _earlier_summaries(messages: Sequence[Message]) -> list[Message]:
    """Return the system messages that stand after others: opened summaries, which the new one takes in."""
    first = next((place for place, message in enumerate(messages) if not message.is_system), len(messages))
    return [message for message in messages[first:] if message.is_system]
