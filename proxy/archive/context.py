"""What the model sees of a conversation, and what it saw at any message: understood as on the road, and shown."""

from __future__ import annotations

import json
from collections.abc import Sequence

from proxy.commands import at_rest
from proxy.core.assemble import assemble
from proxy.core.conversation import StoredConversation, StoredMessage
from proxy.core.echo import as_sent
from proxy.core.errors import InvalidRequest
from proxy.core.messages import Message
from proxy.core.ports import Caller
from proxy.core.situation import NoCompaction, ReuseSummary
from proxy.exchange import Controls, Refused
from proxy.fit import Fitting
from proxy.identity import Place
from proxy.readback import chain_of_stored

from .finding import NOBODY, Finding
from .pages import Told


class Contexts:
    """Takes ports only; holds no state of its own."""

    def __init__(self, finding: Finding, fitting: Fitting) -> None:
        self._finding = finding
        self._fitting = fitting

    async def context(self, conversation: str, caller: Caller | None, at: int | None) -> Told:
        """What the model would see, were it asked now; or what it saw when it was asked at a message.

        :param at: a message that was asked with or answered, counted from 1
        """
        record = await self._finding.record(conversation, caller)
        kept = await self._finding.readback.messages(record)
        if at is not None:
            return await self._context_at(record, kept, at)
        heads = await self._finding.heads.head(record.id)
        request = await self._finding.request(record.model, [*heads, *(as_sent(one.raw) for one in kept)])
        place = Place(record.tenant, chain_of_stored(record.id, kept))
        case = await self._finding.road.understand(request, caller or NOBODY, Controls(), stored=place)
        fitted = await self._fitting.fit(at_rest(case), lambda _, __: None)
        if isinstance(fitted, Refused):
            raise fitted.error
        report = fitted.report
        return {
            "object": "conversation.context",
            "conversation": record.id,
            "at": record.message_count,
            "exact": isinstance(self._fitting.plan(case), NoCompaction | ReuseSummary),
            "model": record.model,
            "messages": [json.loads(message.raw) for message in fitted.messages],
            "summarized_messages": report.summarized,
            "tokens": report.tokens_after,
            "limit": report.limit,
        }

    async def _context_at(self, record: StoredConversation, kept: Sequence[StoredMessage], at: int) -> Told:
        turns = [turn for turn in await self._finding.store.all_turns(record.id) if turn.last <= record.message_count]
        turn = next((one for one in turns if one.first <= at <= one.last), None)
        if turn is None:
            raise InvalidRequest(f"'at' must be a message of a turn, from 1 to {record.message_count}.", param="at")
        asked, answered = turn.last, turn.complete and not turn.beyond
        if answered and turn.last > 1 and json.loads(kept[turn.last - 1].raw).get("role") == "assistant":
            asked -= 1
        whole = turn.beyond <= turn.complete  # of a parent's turn the answer may be missing, and nothing else
        texts = await self._finding.store.system_messages(record.id)
        heads = [texts[digest] for place, digest in turn.systems if place == 0 and digest in texts]
        request = await self._finding.request(record.model, [*heads, *(as_sent(one.raw) for one in kept[:asked])])
        messages: Sequence[Message] = request.messages
        made = [
            one
            for one in await self._finding.summaries(record)
            if one.covered == turn.summarized and one.created_at <= turn.created_at
        ]
        if made:
            messages = assemble(messages, made[-1])
        inner = any(place for earlier in turns if earlier.last <= turn.last for place, _ in earlier.systems)
        return {
            "object": "conversation.context",
            "conversation": record.id,
            "at": at,
            "exact": whole and bool(made or not turn.summarized) and not inner,
            "model": turn.model,
            "messages": [json.loads(message.raw) for message in messages],
            "summarized_messages": made[-1].covered if made else 0,
        }
