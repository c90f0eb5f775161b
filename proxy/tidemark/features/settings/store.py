"""Stores the settings for all models that the operator changes while Tidemark runs.

They stand beside the registry's records and share its version, which every worker polls anyway.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from tidemark.core.errors import RecordUnreadable, StoreUnavailable
from tidemark.core.operator_settings import SettingValues
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask
from tidemark.store.scripts import lua

TRIES = 16
"""Changes that may come at the same instant and all take effect."""
_CHANGE = lua(__file__, "settings")


class RedisSettings:
    """The settings in Redis. All state is the server's."""

    def __init__(self, ask: Ask, codec: Codec) -> None:
        self._ask = ask
        self._codec = codec

    async def stored(self) -> SettingValues:
        """Return the settings; none if another version of Tidemark wrote what this one cannot read.

        :raises StoreUnavailable: the store did not answer in time
        """
        return self._read(await self._ask("GET", keys.models_part("s")))

    async def change(self, change: Callable[[SettingValues], SettingValues]) -> None:
        """Change the settings, on top of what others have set meanwhile.

        :param change: returns the new values for the stored ones; called again if another change was faster. What it
            raises leaves everything as it is
        :raises StoreUnavailable: the store did not answer in time, or others were faster again and again
        """
        for _ in range(TRIES):
            before: bytes | None = await self._ask("GET", keys.models_part("s"))
            after = change(self._read(before))
            packed = self._codec.pack_json(dict(after), "", keys.models_part("s"), "") if after else b""
            if await self._ask("EVAL", _CHANGE, 1, keys.MODELS, before or "", packed, uuid.uuid4().hex):
                return
        raise StoreUnavailable("Too many requests change the settings at once. Nothing was changed; send it again.")

    def _read(self, packed: bytes | None) -> SettingValues:
        if packed is None:
            return {}
        try:
            content = self._codec.unpack_json(packed, keys.models_part("s"), "")
        except (RecordUnreadable, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
