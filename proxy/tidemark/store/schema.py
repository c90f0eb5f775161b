"""Compares the schema of the store with the one that this program knows, again every second.

The schema is the form of everything in the store as a whole: one number under one key. ``codec.VERSION`` is the form of
one record. A field at the end of a record, or a further key, needs no new schema, since old programs ignore both. A
change needs a new schema if an old program would damage the data, as when a key gets another meaning. Then this module
gets a step from the schema before, or a note why the old form is read as it is. The release before must know the number
already: its workers refuse the store from the moment when the first new worker has raised it.

Schema 1 is also that of stores without a number, which older versions wrote; they get it at the first start. In schema
2 messages may be compressed, which earlier versions cannot read. A store gets the number before the first compressed
message, so that workers of earlier versions leave the store alone. New stores have it. Another store gets it if all its
workers surely read it: an embedded store has the workers of one command only, and a configuration may say ``zstd``
itself.

With keyed digests (docs/adr/0046) a colon and the mark of their key follow. A program with another key would find
nothing in the store and fill it with what others do not find, so it leaves the store alone, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from tidemark.core.conversation.messages import digest_mark
from tidemark.core.errors import StoreError
from tidemark.store import keys
from tidemark.store.connection.client import FAILURES, StoreClient
from tidemark.store.repetition import RepeatedLook

SCHEMA = 2
"""The newest schema that this program knows."""
COMPRESSED = 2
"""The first schema in which messages may be compressed."""
_WITHOUT_NUMBER = 1
WATCH_SECONDS = 1.0
"""Between two looks at the store's schema: another server, or another version's worker, may have come meanwhile."""
REPEAT_SECONDS = 60.0
"""Between two warnings of the same schema."""


async def read_schema(client: StoreClient) -> bytes:
    """Return the schema that a store has. One without gets a number: this program's if it is new.

    :raises OSError: and the others of ``FAILURES``: the store does not answer
    """
    stored: bytes | None = await client.call("GET", keys.SCHEMA)
    if stored is None:
        with contextlib.suppress(*FAILURES):  # a replica, or a full store: another start notes it
            has_content = await client.call("EXISTS", keys.everybodys_index())
            mark = f":{digest_mark()}" if digest_mark() else ""
            await client.call("SET", keys.SCHEMA, str(_WITHOUT_NUMBER) if has_content else f"{SCHEMA}{mark}", "NX")
        stored = await client.call("GET", keys.SCHEMA)
    return b"%d:%s" % (_WITHOUT_NUMBER, digest_mark().encode()) if stored is None else stored


_OTHER_DIGESTS = (
    "The store was begun with other digests: encryption.keyed_digests or TIDEMARK_SECRET has changed since. Nothing is "
    "read or written there. Set both as they were, name another store by store.url, or delete its key tm:schema if "
    "nothing is stored yet."
)


class CompressionSwitch:
    """Compresses messages once every worker that may be there has seen that the store has them compressed.

    Mutable: the schema at the look before.

    :param switch: takes whether messages are compressed from now on
    :param raise_schema: gives the store the schema with compressed messages; None if an older worker may be there
    """

    def __init__(self, switch: Callable[[bool], None], raise_schema: Callable[[], Awaitable[object]] | None) -> None:
        self._switch = switch
        self._raise_schema = raise_schema
        self._schema = 0

    async def note(self, schema: int) -> None:
        """Take the schema that a look found. All workers look equally often, so one look later they know it."""
        self._switch(min(schema, self._schema) >= COMPRESSED)
        self._schema = schema
        if 0 < schema < COMPRESSED and self._raise_schema is not None:
            with contextlib.suppress(StoreError):  # the next look tries it again
                await self._raise_schema()


def number_of(stored: bytes) -> int:
    """Return the number of a schema that this program knows."""
    return int(stored.partition(b":")[0])


def refusal_of(stored: bytes, *, whatever_digests: bool = False) -> str:
    """Say why a store of a schema cannot be used; empty if it can.

    :param whatever_digests: the caller makes no digests of its own
    """
    number, _, mark = stored.partition(b":")
    if number.isdigit() and int(number) <= SCHEMA:
        return "" if whatever_digests or mark == digest_mark().encode() else _OTHER_DIGESTS
    return (
        f"A newer version of Tidemark wrote the store: its schema is {stored.decode(errors='replace')[:40]}, and this "
        f"version knows schemas up to {SCHEMA}. Nothing is read or written there. Run the newer version, or name "
        "another store by store.url."
    )


class SchemaWatch:
    """Looks at the store's schema again and again. Belongs to one event loop. Mutable: when it warned last.

    :param checks: ``RedisStore.check_schema`` of each connection to the store
    :param warn: takes the reason for which the store is not used, once a minute
    :param note: takes the schema that the first of them found; 0 if it does not answer
    """

    def __init__(
        self,
        checks: Sequence[Callable[[], Awaitable[int]]],
        warn: Callable[[str], None],
        note: Callable[[int], Awaitable[None]],
    ) -> None:
        self._checks = checks
        self._warn = warn
        self._note = note
        self._warned_at = -REPEAT_SECONDS
        self._looks = RepeatedLook(self._look, WATCH_SECONDS)

    async def start(self) -> None:
        """Look once, and from now on every second."""
        await self._look()
        self._looks.start(after_seconds=WATCH_SECONDS)

    async def aclose(self) -> None:
        await self._looks.aclose()

    async def _look(self) -> None:
        outcomes = await asyncio.gather(*[check() for check in self._checks], return_exceptions=True)
        refusals = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        await self._note(outcomes[0] if isinstance(outcomes[0], int) else 0)
        now = asyncio.get_running_loop().time()
        if refusals and now - self._warned_at >= REPEAT_SECONDS:
            self._warned_at = now
            self._warn(str(refusals[0]))
        elif not refusals:
            self._warned_at = -REPEAT_SECONDS
