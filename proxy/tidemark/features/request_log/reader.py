"""Reads pages of the log, newest first, for the API and the console.

Workers write every other second, so entries that stand within some seconds of the stream are sorted together by the
times of their requests. A page looks at some thousand requests at most.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from tidemark.core.cursors import cursor_of, place_of
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.features.request_log.store import RedisRequestLog, StoredRequests
from tidemark.store.request_facts import RequestFacts

SPAN_MS = 4000
"""The part of the stream that is sorted by time: two of a worker's batches."""
MAX_SEARCHED = 5000
"""The most requests that one page looks at."""
ENTRIES = 16
"""Entries that are read at once."""
_ID = re.compile(r"(\d{1,16}-\d{1,16})-(\d{1,4})", re.ASCII)


@frozen
class LoggedRequest:
    """A request of the log."""

    id: str
    """The entry of the stream, and the place in it."""
    owner: str
    """Empty if the request ended before it was known whose it is."""
    facts: RequestFacts

    @property
    def order(self) -> tuple[float, int, int, int]:
        """Return what requests are sorted by."""
        milliseconds, number, place = self.id.split("-")
        return (self.facts.at, int(milliseconds), int(number), int(place))


@frozen
class RequestConditions:
    """Which requests a page has; what is empty leaves none out."""

    model: str = ""
    tenant: str = ""
    """The beginning of an owner's fingerprint, or the name of a tenant."""
    kind: str = ""
    """One, or several with commas between."""
    status: str = ""
    """A status, or ``2xx``, ``4xx`` and so on."""
    conversation: str = ""
    warnings: bool = False

    @property
    def is_all(self) -> bool:
        """Return whether no request is left out."""
        return not (self.model or self.tenant or self.kind or self.status or self.conversation or self.warnings)

    @property
    def kinds(self) -> Sequence[str]:
        """Return the kinds, if only some are wanted."""
        return self.kind.split(",") if self.kind else ()

    def fit(self, owner: str, facts: RequestFacts) -> bool:
        status = self.status
        return (
            (not self.model or facts.model == self.model)
            and (not self.kind or facts.kind in self.kinds)
            and (not self.warnings or bool(facts.warning))
            and (not self.tenant or owner.startswith(self.tenant) or facts.tenant == self.tenant)
            and (not self.conversation or facts.conversation == self.conversation)
            and (not status or str(facts.status) == status or f"{facts.status // 100}xx" == status)
        )


NO_CONDITIONS = RequestConditions()


@frozen
class LogPage:
    """A page of the log."""

    requests: Sequence[LoggedRequest]
    next_cursor: str | None
    """Where older ones begin; None if there are none."""
    is_partial: bool = False
    """Whether the page ends because it has looked at enough requests."""


@frozen
class RequestLogReader:
    """Reads the log; holds no state."""

    store: RedisRequestLog
    settle: Callable[[], Awaitable[None]]
    """Writes what this worker has not written yet."""

    async def page(
        self, limit: int, cursor: str | None, conditions: RequestConditions = NO_CONDITIONS, owner: str | None = None
    ) -> LogPage:
        """Return a page.

        :param owner: whose requests; None for those of all
        :raises InvalidRequest: the cursor is none of this list
        :raises StoreUnavailable: the store did not answer in time
        """
        if cursor is None:
            await self.settle()
        span, last = _place(cursor)
        chosen, searched = list[LoggedRequest](), 0
        async for at_span, entries in self._spans(span):
            requests = [
                request
                for entry in entries
                if owner is None or entry.owner == owner
                for request in self._requests(entry, conditions)
            ]
            requests.sort(key=lambda request: request.order, reverse=True)
            for request in requests:
                if at_span == span and last is not None and request.order >= last:
                    continue
                if len(chosen) == limit:
                    return LogPage(chosen, _cursor(span_of(chosen[-1].id), chosen[-1]))
                chosen.append(request)
            searched += sum(entry.count for entry in entries)
            if searched >= MAX_SEARCHED:
                return LogPage(chosen, _cursor(at_span - 1), is_partial=True)
        return LogPage(chosen, None)

    async def request(self, identifier: str, owner: str | None = None) -> LoggedRequest | None:
        """Return one request; None if the log has no such one, or it is another tenant's.

        :param owner: whose it must be; None for anybody's
        """
        match = _ID.fullmatch(identifier)
        entry = await self.store.entry(match[1]) if match else None
        if match is None or entry is None or (owner is not None and entry.owner != owner):
            return None
        return next((request for request in self._requests(entry) if request.id == identifier), None)

    async def _spans(self, span: int | None) -> AsyncIterator[tuple[int, Sequence[StoredRequests]]]:
        """Yield the entries of each part of the stream, the newest first, and the part's number."""
        newest = "+" if span is None else str((span + 1) * SPAN_MS - 1)
        together: list[StoredRequests] = []
        while entries := await self.store.read(newest, ENTRIES):
            for entry in entries:
                if together and span_of(entry.id) != span_of(together[0].id):
                    yield span_of(together[0].id), together
                    together = []
                together.append(entry)
            newest = f"({entries[-1].id}"
        if together:
            yield span_of(together[0].id), together

    def _requests(
        self, entry: StoredRequests, conditions: RequestConditions = NO_CONDITIONS
    ) -> Sequence[LoggedRequest]:
        is_all, owner = conditions.is_all, entry.owner
        return [
            LoggedRequest(f"{entry.id}-{place}", owner, facts)
            for place, facts in enumerate(self.store.requests_of(entry))
            if is_all or conditions.fit(owner, facts)
        ]


def span_of(identifier: str) -> int:
    """Return the part of the stream that an entry or a request stands in."""
    return int(identifier.partition("-")[0]) // SPAN_MS


def _cursor(span: int, last: LoggedRequest | None = None) -> str:
    return cursor_of(span, last.facts.at if last else 0.0, last.id if last else "")


def _place(cursor: str | None) -> tuple[int | None, tuple[float, int, int, int] | None]:
    """Return the part of the stream that a page begins in, and the order of the last request before it."""
    if cursor is None:
        return None, None
    span, at, identifier = place_of(cursor, (int, float, str))
    match = _ID.fullmatch(str(identifier)) if identifier else None
    if not isinstance(span, int) or not isinstance(at, float) or span < 0 or (identifier and match is None):
        raise InvalidRequest("'cursor' must be the 'next_cursor' of the page before, as it came.", param="cursor")
    if match is None:
        return span, None
    milliseconds, number = match[1].split("-")
    return span, (at, int(milliseconds), int(number), int(match[2]))
