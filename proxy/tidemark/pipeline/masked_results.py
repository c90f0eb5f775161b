"""Masked results in a request: the lines that a plan asks for, and their tokens.

A mask is stored like a summary, so forks, restarts and other workers use it as they use summaries.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import MaskedResults
from tidemark.core.planning.situation import MaskResults
from tidemark.core.ports import TokenCounter
from tidemark.core.recall.result_lines import line_for
from tidemark.pipeline.originals import client_places, originals_of
from tidemark.pipeline.values import RequestContext

REMEMBERED = 1024
"""Conversations whose lines are counted already. Each of their turns sends the same ones."""


class ResultMasks:
    """Writes lines and counts them. The mutable state is a cache of counts."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._counts: BoundedCache[tuple[str, str, str], int] = BoundedCache(REMEMBERED)

    def masked(self, context: RequestContext, planned: MaskResults) -> MaskedResults:
        """Return the results that a plan masks, with those that were masked before."""
        summary = context.stored.summary
        earlier = summary.masked.lines if summary and summary.masked else ()
        originals, _ = originals_of(context, planned.covered)
        handle = context.profile.policy.recall_tool
        lines = {position: line_for(originals[position], handle=handle) for position in planned.positions}
        return MaskedResults(summary.base if summary else None, tuple(sorted({**lines, **dict(earlier)}.items())))

    def tokens(self, context: RequestContext, masked: MaskedResults, covered: int, version: str = "") -> int:
        """Return the tokens of the messages that masked results stand among, without the summary before them.

        :param covered: the number of client messages up to which results were looked at
        :param version: of the record, if there is one
        """
        messages, counts = context.request.messages, context.count.messages
        places = client_places(messages, len(context.chain))
        key = (version, context.route.upstream_model, context.request.dialect.name)
        lines = self._counts.get(key) if version else None
        if lines is None:
            lines = self._line_tokens(context, masked, places)
            self._counts.put(key, lines)
        standing = sum(counts[places[position]] for position in range(masked.first, covered))
        return standing - sum(counts[places[position]] for position, _ in masked.lines) + lines

    def _line_tokens(self, context: RequestContext, masked: MaskedResults, places: Sequence[int]) -> int:
        model, messages = context.route.upstream_model, context.request.messages
        replace_middle = context.request.dialect.replace_middle
        tokens = 0
        for position, line in masked.lines:
            result: Message = messages[places[position]]
            tokens += self._counter.count_message(replace_middle(result, 0, len(result.text), line), model)
        return tokens
