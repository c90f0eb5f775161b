"""Masked results in a request: the lines that a plan asks for, and their tokens.

A mask is stored like a summary, so forks, restarts and other workers use it as they use summaries.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import MaskedResults
from tidemark.core.planning.masks import LINE_TOKENS
from tidemark.core.planning.situation import MaskResults
from tidemark.core.ports import TokenCounter
from tidemark.core.recall.result_lines import QUOTED_CHARS, line_for
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
        upon = planned.upon
        earlier = upon.masked.lines if upon and upon.masked else ()
        originals, _ = originals_of(context, planned.covered)
        lines = {position: self._line(context, originals[position]) for position in planned.positions}
        return MaskedResults(upon.base if upon else None, tuple(sorted({**lines, **dict(earlier)}.items())))

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
        standing += lines - sum(counts[places[position]] for position, _ in masked.lines)
        if masked.base is None:  # no summary message stands before them
            return standing - context.count.first_summary_tokens
        absorbed = masked.base.absorbed
        if not absorbed:
            return standing
        among = range(places[masked.first], places[covered])
        # What the summary absorbed goes out again if it stands behind what that stands for.
        return standing + sum(counts[place] for place in among if messages[place].digest in absorbed)

    def _line(self, context: RequestContext, result: Message) -> str:
        """Return the line for a result, with as long quotations as its bound allows."""
        handle, model = context.profile.policy.recall_tool, context.route.upstream_model
        for most in (QUOTED_CHARS, QUOTED_CHARS // 2, QUOTED_CHARS // 4, QUOTED_CHARS // 8):
            line = line_for(result, handle=handle, most=most)
            if self._counter.count_message(self._with_line(context, result, line), model) <= LINE_TOKENS:
                return line
        return line_for(result, handle=handle, most=0)

    def _line_tokens(self, context: RequestContext, masked: MaskedResults, places: Sequence[int]) -> int:
        model, messages = context.route.upstream_model, context.request.messages
        lined = (self._with_line(context, messages[places[position]], line) for position, line in masked.lines)
        return sum(self._counter.count_message(message, model) for message in lined)

    @staticmethod
    def _with_line(context: RequestContext, result: Message, line: str) -> Message:
        return context.request.dialect.replace_middle(result, 0, len(result.text), line)
