"""Compares the schema of the store with the one that this program knows, again every second.

The schema is the form of everything in the store as a whole: one number under one key. ``codec.VERSION`` is the form of
one record. A field at the end of a record, or a further key, needs no new schema, since old programs ignore both. A new
schema is for what an old program would damage, such as another meaning of a key. Then a step from the schema before it
comes into this module, or a note why the old form is read as it is, and the release before must know the number
already: its workers refuse the store from the moment when the first new one has raised it.

Schema 1 is also that of all stores without a number, which older versions wrote; they get it at the first start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from proxy.store import keys
from proxy.store.connection.client import FAILURES, StoreClient
from proxy.store.repetition import RepeatedLook

SCHEMA = 1
"""The schema that this program writes."""
WATCH_SECONDS = 1.0
"""Between two looks at the store's schema: another server, or another version's worker, may have come meanwhile."""
REPEAT_SECONDS = 60.0
"""Between two warnings of the same schema."""


async def read_schema(client: StoreClient) -> bytes:
    """Return the schema that a store has, and note this program's in a store that has none.

    :raises OSError: and the others of ``FAILURES``: the store does not answer
    """
    stored: bytes | None = await client.call("GET", keys.SCHEMA)
    if stored is None:
        with contextlib.suppress(*FAILURES):  # a replica, or a full store: another start notes it
            await client.call("SET", keys.SCHEMA, str(SCHEMA), "NX")
        stored = await client.call("GET", keys.SCHEMA)
    return str(SCHEMA).encode() if stored is None else stored


def refusal_of(stored: bytes) -> str:
    """Say why a store of a schema cannot be used; empty where it can."""
    if stored.isdigit() and int(stored) <= SCHEMA:
        return ""
    return (
        f"A newer version of Tidemark wrote the store: its schema is {stored.decode(errors='replace')[:40]}, and this "
        f"version knows schemas up to {SCHEMA}. Nothing is read or written there. Run the newer version, or name "
        "another store by store.url."
    )


class SchemaWatch:
    """Looks at the store's schema again and again. Belongs to one event loop. Mutable: when it warned last.

    :param checks: ``RedisStore.check_schema`` of each connection to the store
    :param warn: takes the reason for which the store is not used, once a minute
    """

    def __init__(self, checks: Sequence[Callable[[], Awaitable[None]]], warn: Callable[[str], None]) -> None:
        self._checks = checks
        self._warn = warn
        self._warned_at = -REPEAT_SECONDS
        self._looks = RepeatedLook(self._look, WATCH_SECONDS)

    async def start(self) -> None:
        """Look once, and from now on every second."""
        await self._look()
        self._looks.start(after_seconds=WATCH_SECONDS)

    async def aclose(self) -> None:
        """Stop looking."""
        await self._looks.aclose()

    async def _look(self) -> None:
        outcomes = await asyncio.gather(*[check() for check in self._checks], return_exceptions=True)
        refusals = [outcome for outcome in outcomes if outcome is not None]
        now = asyncio.get_running_loop().time()
        if refusals and now - self._warned_at >= REPEAT_SECONDS:
            self._warned_at = now
            self._warn(str(refusals[0]))
        elif not refusals:
            self._warned_at = -REPEAT_SECONDS
