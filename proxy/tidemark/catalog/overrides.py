"""Caches the registry's settings in each worker, and records the models that requests find.

The catalog looks here at every request, which costs one dict lookup. A task asks the store for a version key twice a
second (``docs/adr/0006-overrides-by-polling.md``). The same task writes the observations of requests to the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

from tidemark.core.bounded import BoundedCache
from tidemark.core.errors import StoreError
from tidemark.core.events import Listener, StoreReplaced
from tidemark.core.frozen import frozen
from tidemark.core.models import NOTHING_SET, ModelObservation, ModelOverrides, ModelRecord, RegistryVersion, model_id
from tidemark.core.ports import Route
from tidemark.store.models import RedisModels

POLL_SECONDS = 0.4
"""Every worker sees a change within this time and one round trip, well under the second that is promised."""
NOTED_SECONDS = 60.0
"""An observation is written at most once in this time, and again while its model is used. The store has a bound, so it
retains the models in use. A changed observation is written at once, unless it changed within this time already."""
WRITTEN_AT_ONCE = 50
"""Observations written between two looks at the version, so that many of them do not delay new settings."""
REMEMBERED = 1024
TOLD_SECONDS = 3600.0
"""How long readiness tells that the store was replaced."""
STORE_REPLACED = (
    "The store was emptied, or is another one than before: its earlier conversations are gone. Restore a backup "
    "(tidemark store import), and see that nothing empties it or evicts from it."
)


@frozen
class _Note:
    """An observation with its times."""

    observation: ModelObservation
    epoch: str
    """The store's epoch at that time; an emptied store has another one."""
    noted_at: float
    changed_at: float
    """Unix times in seconds: of the last note, and of the last changed note."""


class LiveOverrides:
    """The overrides that this worker has read, and the observations that wait to be written.

    The store's epoch comes with them, so this is also ``StoreIdentity``.

    :param clock: Unix time, seconds
    """

    def __init__(self, store: RedisModels, clock: Callable[[], float], emit: Listener = lambda _: None) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._replaced_at = -math.inf
        self._epoch = ""
        self._version = RegistryVersion("", "")
        self._read = False
        self._records: dict[str, ModelRecord] = {}
        self._noted: BoundedCache[str, _Note] = BoundedCache(REMEMBERED)
        self._waiting: BoundedCache[str, _Note] = BoundedCache(REMEMBERED)
        self._refreshing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.followers: list[Callable[[], Awaitable[None]]] = []
        """What else is read again if the version changed."""

    def of(self, route: Route) -> ModelOverrides:
        if not self._records:
            return NOTHING_SET
        record = self._records.get(model_id(route.provider, route.upstream_model))
        if record is None and not route.provider:  # a request that is not forwarded has no provider
            record = next((stored for stored in self._records.values() if stored.name == route.name), None)
        return record.overrides if record else NOTHING_SET

    def note(self, observation: ModelObservation) -> None:
        """Queue an observation to be written in the background, if it is new or the last note is old."""
        model, now, epoch = model_id(observation.provider, observation.model), self._clock(), self._version.epoch
        note_before, changed_at = self._noted.get(model), now
        if note_before is not None and note_before.epoch == epoch:
            same = note_before.observation is observation or note_before.observation == observation
            changed_at = note_before.changed_at if same else now
            if now - (note_before.noted_at if same else note_before.changed_at) < NOTED_SECONDS:
                return
        note = _Note(observation, epoch, now, changed_at)
        self._noted.put(model, note)
        self._waiting.put(model, note)

    def noted(self, model: str) -> ModelObservation | None:
        """Return this worker's newest observation of a model, by id."""
        note = self._noted.get(model)
        return note.observation if note else None

    @property
    def epoch(self) -> str:
        return self._epoch

    async def renewed(self) -> str:
        with contextlib.suppress(StoreError):
            await self.refresh()
        return self._epoch

    @property
    def replacement(self) -> str:
        """Say that the store was replaced or emptied within the last hour; empty if it was not."""
        return STORE_REPLACED if self._clock() - self._replaced_at < TOLD_SECONDS else ""

    async def start(self) -> None:
        """Read the overrides, if the store answers, and follow their changes from now on."""
        await self._poll()
        self._task = asyncio.create_task(self._follow())

    async def aclose(self) -> None:
        """Stop following, and write what still waits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._poll(most=REMEMBERED)

    async def refresh(self) -> None:
        """Read the overrides again if their version changed.

        :raises StoreUnavailable: the store did not answer; the last read overrides stay valid
        """
        async with self._refreshing:  # an older answer must not arrive last
            if not self._read or await self._store.version() != self._version:
                version, records = await self._store.changed()
                for follow in self.followers:
                    await follow()
                self._records = {record.id: record for record in records}
                self._version, self._read = version, True
                self._note_epoch(version.epoch)

    def _note_epoch(self, epoch: str) -> None:
        """Report a store that has another epoch; one that takes no writes may have none yet."""
        if self._epoch and epoch not in ("", self._epoch):
            self._replaced_at = self._clock()
            self._emit(StoreReplaced())
        self._epoch = epoch or self._epoch

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._poll()

    async def _poll(self, most: int = WRITTEN_AT_ONCE) -> None:
        with contextlib.suppress(StoreError):
            await self.refresh()
            for model, note in list(self._waiting.items())[:most]:
                with contextlib.suppress(UnicodeError):  # a name that cannot be encoded must not block others
                    await self._store.sight(note.observation, self._clock())
                if self._waiting.get(model) is note:  # not a newer one by now, even of the same model
                    del self._waiting[model]
