"""Returns entries of the audit log, filtered, for the endpoint and the console's page; and verifies the whole log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.core.audit_chain import AuditEntry, ChainExamination, ChainHead, ChainKey, Verdict, read_head
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen
from tidemark.store.audit_log import AuditLog

SEARCHED = 10_000
"""Entries that one page of a filtered list looks at; the next page goes on there."""
_BATCH = 500
MOST_ROUNDS = 100
"""So often a verification reads the end again while others append."""
FILTERS = ("action", "role", "actor", "tenant", "subject", "address")


@frozen
class AuditPage:
    """Entries, newest first."""

    entries: tuple[AuditEntry, ...]
    before: int | None
    """The number before which the next page begins; None at the end."""
    head: ChainHead


@frozen
class AuditReader:
    """Reads the log; it has no state of its own."""

    log: AuditLog

    async def page(self, limit: int, before: int | None, filters: Mapping[str, str]) -> AuditPage:
        """Return a page of the entries that have all wanted values.

        :param filters: by field; an action also stands for those that begin with it and a dot
        :raises StoreUnavailable: the store did not answer in time
        """
        head = read_head(await self.log.packed_head()) or ChainHead()
        matches: list[AuditEntry] = []
        place, searched = before, 0
        while searched < SEARCHED:
            batch = await self.log.newest(_BATCH if filters else limit + 1, place)
            for entry in batch:
                if len(matches) == limit:
                    return AuditPage(tuple(matches), place, head)
                if _fits(entry, filters):
                    matches.append(entry)
                place = entry.number
            searched += len(batch)
            if not batch:
                return AuditPage(tuple(matches), None, head)
        return AuditPage(tuple(matches), place, head)


def _fits(entry: AuditEntry, filters: Mapping[str, str]) -> bool:
    for name, wanted in filters.items():
        value = str(getattr(entry.fact, name))
        if value != wanted and not (name == "action" and value.startswith(f"{wanted}.")):
            return False
    return True


def entry_json(entry: AuditEntry) -> dict[str, JsonValue]:
    """Return an entry as JSON."""
    fact = entry.fact
    return {
        "number": entry.number,
        "at": round(entry.at / 1000, 3),
        "action": fact.action,
        "role": fact.role,
        "actor": fact.actor,
        "tenant": fact.tenant,
        "subject": fact.subject,
        "address": fact.address,
        "worker": entry.worker,
    }


async def verify(log: AuditLog, more_keys: Sequence[ChainKey] = (), noted: ChainHead | None = None) -> Verdict:
    """Examine all entries, while the log is in use.

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
