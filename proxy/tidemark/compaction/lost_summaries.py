"""Lost summaries: notices a client that changes, with each request, what the summary before stood for.

A client with a clock in its first message does so. Each of its requests would ask a model for a summary that no other
request can use. ``immediate.py`` writes such summaries without a model, and ``background.py`` prepares none.
"""

from __future__ import annotations

from itertools import pairwise

from tidemark.compaction.order import CompactionOrder
from tidemark.core.bounded import BoundedCache
from tidemark.core.frozen import frozen

MOST_TALKS = 1024
"""Newest summaries that a process remembers."""
MOST_LOST = 2
"""Lost summaries after which a model still writes the next one, since a person may change an old message."""
MOST_RECENT = 64
"""Newest messages among which the end of the request before is looked for."""

IN_VAIN = "the client changes with each request what its summaries stand for; no model was asked for this one"
"""What the client is told."""


@frozen
class _Made:
    prefix: bytes
    covered: int
    lost: int
    """How many summaries in a row were lost before this one."""


class LostSummaries:
    """Remembers the newest summaries by the last two messages of their requests, which tell a talk from any other."""

    def __init__(self) -> None:
        self._newest_summaries: BoundedCache[tuple[str, bytes, bytes], _Made] = BoundedCache(MOST_TALKS)

    def are_made_for(self, order: CompactionOrder) -> bool:
        """Return whether the next request could probably not use the ordered summary; remember that it is made."""
        if order.request is None or order.by_hand:
            return False
        recent = [message.digest for message in order.request.messages[-MOST_RECENT:] if not message.is_system]
        keys = [(order.tenant, *pair) for pair in pairwise(recent)]
        if not keys:
            return False
        chain, covered = order.chain, order.plan.covered
        before = next((self._newest_summaries[key] for key in reversed(keys) if key in self._newest_summaries), None)
        is_lost = before is not None and chain.at(min(before.covered, len(chain))) != before.prefix
        lost = before.lost + 1 if before is not None and is_lost else 0
        self._newest_summaries.put(keys[-1], _Made(chain.at(covered), covered, lost))
        return lost > MOST_LOST
