"""Errors of the conversation store."""

from __future__ import annotations

from tidemark.core.errors.base import TidemarkError


class StoreError(TidemarkError):
    """The conversation store is at fault."""


class StoreUnavailable(StoreError):
    """The store did not answer in time; requests are served without it."""

    code = "store_unavailable"
    retry_after = 1.0
    """A store that failed is asked twice a second whether it is back (``store/connection/probing.py``)."""


class StoreRefuses(StoreUnavailable):
    """The store answers and takes no writes: its disk or memory is full, or it is a read-only replica."""

    retry_after = 0.0


class SchemaUnknown(StoreRefuses):
    """A newer version of Tidemark wrote the store. This one would damage it; the message says the mend."""

    code = "store_schema_unknown"


class RecordUnreadable(StoreError):
    """One record is broken or of a newer version. The store works, and all other records can be read."""

    code = "unreadable_record"


class TurnNotStored(StoreError):
    """The model replied, but the turn of a stored history was not stored, so the next request would lack it."""

    code = "turn_not_stored"


class StoreDamaged(StoreUnavailable):
    """Files of the embedded store are damaged, and this command does not mend them."""


class StoreInUse(StoreError):
    """Another process runs on the same data folder."""

    code = "store_in_use"


class StoreFull(StoreError):
    """The store takes nothing more from one credential, or from any; the message names the setting."""

    code = "store_full"
