"""Applies the operator's settings for all models, and shows and changes them for ``/tidemark/settings``.

It is no step of a request: if the settings change, the catalog gets another function for its policies. Changes reach
this worker by the version that ``overrides.py`` polls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark.catalog.overrides import LiveOverrides
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest, SettingsConflict
from tidemark.core.operator_settings import SettingValues, version_of
from tidemark.features.settings.store import RedisSettings
from tidemark.server.guarding import Announce

ReadSetting = Callable[[str, JsonValue], str | int | float | bool | None]
"""Reads a setting by its name and JSON value; raises ``InvalidRequest``."""


class OperatorSettings:
    """The settings in force in this worker.

    :param configured: the values that apply if the store has none
    :param read_setting: checks names and values
    :param check: refuses values that contradict other settings, with ``InvalidRequest``
    :param apply: puts stored values into force in this worker
    """

    def __init__(
        self,
        store: RedisSettings,
        live: LiveOverrides,
        *,
        configured: SettingValues,
        read_setting: ReadSetting,
        check: Callable[[SettingValues], None],
        apply: Callable[[SettingValues], None],
    ) -> None:
        self._store = store
        self._live = live
        self._configured = configured
        self._read_setting = read_setting
        self._check = check
        self._apply = apply
        self._stored: SettingValues = {}
        live.followers.append(self.refresh)

    @property
    def shows_notices(self) -> bool:
        """Return whether pages show notices of compactions (FR-3.1.3)."""
        return self._stored.get("notices", True) is True

    async def refresh(self) -> None:
        """Read the stored values again, and apply them if they changed.

        :raises StoreUnavailable: the store did not answer in time; the last values stay in force
        """
        stored = await self._store.stored()
        if stored != self._stored:
            self._apply(stored)
            self._stored = stored

    async def described(self) -> dict[str, JsonValue]:
        """Return each setting's value, which of them the store has, and the version of those.

        :raises StoreUnavailable: the store did not answer in time
        """
        return self._describe(await self._store.stored())

    def in_force(self) -> dict[str, JsonValue]:
        """Return what ``described`` returned when the store answered last; these are in force while it does not."""
        return self._describe(self._stored)

    def _describe(self, stored: SettingValues) -> dict[str, JsonValue]:
        settings = {name: value for name, value in stored.items() if name in self._configured}
        ignored: dict[str, JsonValue] = {
            name: value for name, value in settings.items() if not self._is_usable(name, value)
        }
        return {
            "object": "tidemark.settings",
            **self._configured,
            **{name: value for name, value in settings.items() if name not in ignored},
            "stored": [name for name in self._configured if name in stored],
            "ignored": ignored,
            "version": version_of(stored),
        }

    def _is_usable(self, name: str, value: JsonValue) -> bool:
        """Return whether this version of Tidemark takes a stored value; another version may have written it."""
        try:
            self._read_setting(name, value)
        except InvalidRequest:
            return False
        return True

    async def change(self, fields: Mapping[str, JsonValue], announce: Announce) -> dict[str, JsonValue]:
        """Set some settings; null resets one. The change applies to this worker's next request.

        :param fields: with ``version``, the version that the sender has read, nothing newer is overwritten
        :param announce: has the audit log name the settings before they change
        :raises InvalidRequest: a setting is unknown, of another type, out of range, or contradicts another
        :raises SettingsConflict: the settings have another version
        :raises StoreUnavailable: nothing was changed
        """
        version = fields.get("version")
        if version is not None and not isinstance(version, str):
            raise InvalidRequest("'version' is the text that GET shows.", param="version", code="invalid_type")
        values = {name: self._read_setting(name, value) for name, value in fields.items() if name != "version"}

        def change(before: SettingValues) -> SettingValues:
            if version is not None and version != version_of(before):
                raise SettingsConflict
            merged = {**before, **values}
            after = {name: value for name, value in merged.items() if value is not None}
            self._check(after)
            return after

        return await self._keep(change, announce)

    async def reset(self, announce: Announce) -> dict[str, JsonValue]:
        """Remove every stored setting, so that those of file, environment and command line apply again.

        :raises StoreUnavailable: nothing was changed
        """
        return await self._keep(lambda _: {}, announce)

    async def _keep(self, change: Callable[[SettingValues], SettingValues], announce: Announce) -> dict[str, JsonValue]:
        before = await self._store.stored()
        after = change(before)
        names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        await announce(", ".join(sorted(names)), "")
        await self._store.change(change)
        await self._live.refresh()
        return await self.described()
