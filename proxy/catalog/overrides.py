"""What a person set of models, in each worker's memory: read at every request, renewed in the background.

Asked by the catalog on the road of a request, which costs one look into a dict; the store is asked for a version key
twice a second, by a task of its own (``docs/adr/0006-overrides-by-polling.md``). The same task writes down the
models that requests have found.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from proxy.core.bounded import remember
from proxy.core.errors import StoreError
from proxy.core.models import NOTHING_SET, ModelObservation, ModelOverrides, ModelRecord, RegistryVersion, model_id
from proxy.core.ports import ModelStore, Route

POLL_SECONDS = 0.4
"""A change is seen by every worker within it and one round trip: well under the second that is promised."""
NOTED_SECONDS = 60.0
"""A model is written down this often at most, and as long as it is used this often: of too many, those stay that are
used. One that is found otherwise is written at once, but if it was found otherwise within this time."""
WRITTEN_AT_ONCE = 50
"""Sightings between two looks at the version, so that many of them do not hold up what a person set."""
REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class _Noted:
    """A sighting that was noted."""

    sighting: ModelObservation
    epoch: str
    """Of the store that it was noted for; an emptied one has another."""
    noted_at: float
    changed_at: float
    """Unix time, seconds: last noted, and last noted as something else than before."""


class LiveOverrides:
    """The overrides as this worker knows them, and the sightings that wait to be written.

    :param clock: Unix time, seconds
    """

    def __init__(self, store: ModelStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._version = RegistryVersion("", "")
        self._read = False
        self._records: dict[str, ModelRecord] = {}
        self._noted: dict[str, _Noted] = {}
        self._waiting: dict[str, _Noted] = {}
        self._refreshing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def of(self, route: Route) -> ModelOverrides:
        """What a person set of the model that a route leads to."""
        if not self._records:
            return NOTHING_SET
        record = self._records.get(model_id(route.provider, route.upstream_model))
        if record is None and not route.provider:  # a route to nowhere, of a request that is not forwarded
            record = next((one for one in self._records.values() if one.name == route.name), None)
        return record.overrides if record else NOTHING_SET

    def note(self, sighting: ModelObservation) -> None:
        """Write down in the background what a request found of a model, where that is news or the last note is old."""
        model, now, epoch = model_id(sighting.provider, sighting.model), self._clock(), self._version.epoch
        known, changed_at = self._noted.get(model), now
        if known is not None and known.epoch == epoch:
            same = known.sighting is sighting or known.sighting == sighting
            changed_at = known.changed_at if same else now
            if now - (known.noted_at if same else known.changed_at) < NOTED_SECONDS:
                return
        noted = _Noted(sighting, epoch, now, changed_at)
        remember(self._noted, model, noted, most=REMEMBERED)
        remember(self._waiting, model, noted, most=REMEMBERED)

    def noted(self, model: str) -> ModelObservation | None:
        """The newest sighting of a model in this worker, by id."""
        found = self._noted.get(model)
        return found.sighting if found else None

    async def start(self) -> None:
        """Read the overrides, as long as the store answers at once, and follow their changes from now on."""
        await self._turn()
        self._task = asyncio.create_task(self._follow())

    async def aclose(self) -> None:
        """Follow no longer; what still waits is written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._turn(most=REMEMBERED)

    async def refresh(self) -> None:
        """Read the overrides anew where their version is another one.

        :raises StoreUnavailable: the store did not answer; what was known holds
        """
        async with self._refreshing:  # or an older answer could come in last
            if not self._read or await self._store.version() != self._version:
                version, records = await self._store.changed()
                self._records = {record.id: record for record in records}
                self._version, self._read = version, True

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._turn()

    async def _turn(self, most: int = WRITTEN_AT_ONCE) -> None:
        with contextlib.suppress(StoreError):
            await self.refresh()
            for model, noted in list(self._waiting.items())[:most]:
                with contextlib.suppress(UnicodeError):  # a name that cannot be written must not keep others waiting
                    await self._store.sight(noted.sighting, self._clock())
                if self._waiting.get(model) is noted:  # and not a newer one by now, be it of the same sighting
                    del self._waiting[model]
