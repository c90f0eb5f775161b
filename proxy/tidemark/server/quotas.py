"""Holds tenants and keys to their quotas: requests a minute, requests at once, and tokens a day.

Endpoints ask it once they know the caller, before the body is read. A tenant without a bound costs nothing; one with a
bound costs a round trip to the store, where all workers and replicas count together. Without a store requests go on
uncounted, since a proxy that stops is worse than a bound that is late (``docs/adr/0042-keys-and-quotas.md``).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import RateLimitExceeded, StoreError
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.grants import Quota
from tidemark.core.ports import Bound, Caller, QuotaStore, Taken
from tidemark.core.report import Usage

RENEW_SECONDS = 20.0
"""Between two renewals of what is in progress; the store forgets it after three times as long."""
FREE_SECONDS = 0.05
"""How long a place may take to become free before a request is refused."""
ANTHROPICS = "/v1/messages"
CHARACTERS_A_TOKEN = 4
"""For answers whose provider counts nothing, or whose client left before it did."""
_WORDS = {
    "requests": "{of} has sent {limit} requests within a minute, as many as it may. Try again in {seconds} s.",
    "tokens": "{of} has used {used:,} tokens today, and {limit:,} are allowed. The day ends at midnight of UTC.",
    "concurrent": "{of} has {limit} requests in progress, as many as it may. Try again when one has ended.",
}
_QUOTAS = (b"x-ratelimit-", b"anthropic-ratelimit-")
Lines = Sequence[tuple[bytes, bytes]]


class Permission:
    """A request that counts against bounds. Mutable: how many tokens it took, and whether it has ended."""

    def __init__(
        self, owner: str, bounds: Sequence[Bound], end: Callable[[Permission], asyncio.Task[None] | None], lines: Lines
    ) -> None:
        self.owner = owner
        self.bounds = bounds
        self.lease = uuid.uuid4().hex
        self.lines = lines
        """Header lines of the answer: what is allowed, left, and when it is whole again."""
        self.tokens = 0
        self._end = end
        self._telling: asyncio.Task[None] | None = None

    @property
    def counts_tokens(self) -> bool:
        return any(bound.quota.tokens_per_day is not None for bound in self.bounds)

    def end(self) -> None:
        """Give the place back; a second call does nothing."""
        end, self._end = self._end, _nothing
        self._telling = end(self) or self._telling

    async def given_back(self) -> None:
        """Wait until the store has heard that this has ended, or does not answer."""
        if self._telling is not None:
            await asyncio.wait([self._telling])


class Quotas:
    """The quotas of one worker. Its state is which requests are in progress, and what the store has yet to hear.

    :param everybody: each tenant's, for tenants that have no own
    :param tenants: by tenant's id: the values in place of those
    :param clock: Unix time, seconds
    """

    def __init__(
        self,
        store: QuotaStore,
        *,
        everybody: Quota,
        tenants: Mapping[str, Quota],
        clock: Callable[[], float],
        emit: Listener,
    ) -> None:
        self._store = store
        self._everybody = everybody
        self._tenants = tenants
        self._bounds_tenants = bool(everybody) or bool(tenants)
        self._clock = clock
        self._emit = emit
        self._running: set[Permission] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        """The next renewal; None while nothing is in progress."""

    def bounds(self, caller: Caller) -> bool:
        """Return whether anything may bound a caller. Most are unbounded, so every request asks this first."""
        return self._bounds_tenants or (caller.grant is not None and bool(caller.grant.quota))

    async def take(self, caller: Caller, path: str) -> Permission | None:
        """Count a request; None if nothing bounds its caller, or nobody can count.

        :param path: the request's, which decides the names of header lines
        :raises RateLimitExceeded: a bound is used up
        """
        bounds = self._bounds_of(caller)
        if not bounds:
            return None
        permission = Permission(owner_of(caller.fingerprint), bounds, self._give_back, ())
        try:
            answer = await self._store.take(permission.owner, bounds, permission.lease)
            if answer.used_up == "concurrent":  # a stream's last event may come before its place is free
                await asyncio.sleep(FREE_SECONDS)
                answer = await self._store.take(permission.owner, bounds, permission.lease)
        except StoreError as error:
            self._emit(StoreDegraded("quotas", str(error)))
            return None
        permission.lines = _lines_of(bounds, answer, path, self._clock())
        if answer.used_up:
            raise _refusal(bounds, answer, permission.lines)
        self._running.add(permission)
        self._renew_later()
        return permission

    @contextlib.asynccontextmanager
    async def counted(self, caller: Caller | None) -> AsyncIterator[None]:
        """Count a request that may have a model write a summary; its tokens do not count.

        :param caller: None for the operator, whom nothing bounds
        :raises RateLimitExceeded: a bound is used up
        """
        permission = None if caller is None else await self.take(caller, "")
        try:
            yield
        finally:
            if permission is not None:
                permission.end()
                await permission.given_back()

    async def aclose(self) -> None:
        """Wait until the store has heard of all that has ended."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _bounds_of(self, caller: Caller) -> Sequence[Bound]:
        grant, bounds = caller.grant, []
        if self._bounds_tenants:
            tenant = (
                self._tenants.get(owner_of(caller.fingerprint), self._everybody) if self._tenants else self._everybody
            )
            if tenant:
                bounds.append(Bound("", tenant))
        if grant is not None and grant.quota:
            bounds.append(Bound(grant.key, grant.quota))
        return bounds

    def _give_back(self, permission: Permission) -> asyncio.Task[None]:
        """Tell the store from a task of its own, since a client that leaves cancels what waits."""
        self._running.discard(permission)
        return self._begin(self._tell(permission))

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _renew_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RENEW_SECONDS, self._renew_now)

    def _renew_now(self) -> None:
        self._timer = None
        if self._running:
            self._begin(self._renew())
            self._renew_later()

    async def _tell(self, permission: Permission) -> None:
        with contextlib.suppress(StoreError):
            await self._store.give_back(permission.owner, permission.bounds, permission.lease, permission.tokens)

    async def _renew(self) -> None:
        groups: dict[tuple[str, tuple[Bound, ...]], list[str]] = defaultdict(list)
        for permission in self._running:
            bounds = tuple(bound for bound in permission.bounds if bound.quota.concurrent is not None)
            if bounds:
                groups[permission.owner, bounds].append(permission.lease)
        for (owner, bounds), leases in groups.items():
            with contextlib.suppress(StoreError):
                await self._store.renew(owner, bounds, leases)


def tokens_of(usage: Usage, forwarded_tokens: int, answer_bytes: int) -> int:
    """Return what a request took: as its provider counted, else by our own count and by the answer's length.

    A client that leaves before the provider counts pays for what it was sent.

    :param forwarded_tokens: our own count of the request
    """
    if usage.input_tokens is None and usage.output_tokens is None:
        return forwarded_tokens + answer_bytes // CHARACTERS_A_TOKEN
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def without_quotas(lines: Lines) -> list[tuple[bytes, bytes]]:
    """Return header lines without an upstream's own quotas, which are the operator's and not the caller's."""
    return [line for line in lines if not line[0].startswith(_QUOTAS)]


def _nothing(_: Permission) -> None:
    """End nothing: it has ended."""


def _refusal(bounds: Sequence[Bound], answer: Taken, lines: Lines) -> RateLimitExceeded:
    bound, use, kind = bounds[answer.bound], answer.uses[answer.bound], answer.used_up or "requests"
    quota = bound.quota
    limit = {"requests": quota.requests_per_minute, "tokens": quota.tokens_per_day, "concurrent": quota.concurrent}[
        kind
    ]
    words = _WORDS[kind].format(
        of="This key" if bound.name else "This tenant",
        limit=limit or 0,
        used=use.tokens,
        seconds=math.ceil(answer.retry_after),
    )
    shown = "tokens" if kind == "tokens" else "requests"
    return RateLimitExceeded(words, kind=shown, retry_after=max(answer.retry_after, 0.001), lines=lines)


def _lines_of(bounds: Sequence[Bound], answer: Taken, path: str, now: float) -> Lines:
    """Return the header lines of the tightest bounds, in the words of the path's dialect."""
    requests = [
        (rate - use.requests, rate, use.requests_reset)
        for bound, use in zip(bounds, answer.uses, strict=True)
        if (rate := bound.quota.requests_per_minute) is not None
    ]
    tokens = [
        (daily - use.tokens, daily, use.tokens_reset)
        for bound, use in zip(bounds, answer.uses, strict=True)
        if (daily := bound.quota.tokens_per_day) is not None
    ]
    lines: list[tuple[bytes, bytes]] = []
    for kind, counts in (("requests", requests), ("tokens", tokens)):
        if counts:
            remaining, limit, reset = min(counts)
            lines += _lines(kind, (limit, max(0, remaining)), reset, path, now)
    return lines


def _lines(kind: str, counts: tuple[int, int], reset: float, path: str, now: float) -> Lines:
    limit, remaining = (b"%d" % count for count in counts)
    if path.startswith(ANTHROPICS):
        prefix = f"anthropic-ratelimit-{kind}-"
        moment = datetime.fromtimestamp(now + reset, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
        texts = {"limit": limit, "remaining": remaining, "reset": moment}
        return [((prefix + name).encode(), text) for name, text in texts.items()]
    texts = {"limit": limit, "remaining": remaining, "reset": f"{reset:.3f}s".encode()}
    return [(f"x-ratelimit-{name}-{kind}".encode(), text) for name, text in texts.items()]
