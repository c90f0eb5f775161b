"""Verifies a whole audit log while it is in use: ``tidemark audit verify`` asks it."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.audit_chain import ChainExamination, ChainHead, ChainKey, Verdict
from tidemark.store.audit_log import AuditLog

MOST_ROUNDS = 100
"""So often the end is read again while others append."""


async def verify(log: AuditLog, more_keys: Sequence[ChainKey] = (), noted: ChainHead | None = None) -> Verdict:
    """Examine all entries.

    :param more_keys: those of earlier secrets
    :param noted: a head that was noted outside of the store
    :raises StoreUnavailable: the store did not answer in time
    """
    examination, following, packed_head = ChainExamination([log.key, *more_keys]), 1, b""
    for _ in range(MOST_ROUNDS):
        packed_head, count = await log.packed_head(), 0  # before the entries: none of them may be newer at the end
        async for stored in log.stored(following):
            examination.take(stored, noted=noted.number if noted else 0)
            number = stored.place.partition("-")[0]
            following, count = max(following, int(number) + 1), count + 1
        if not count:
            break
    return examination.end(packed_head, noted)
