"""Makes, shows, changes, rotates and revokes the keys of the application, for ``/tidemark/keys`` and the console.

A key is shown once, by the call that makes it. Each worker judges requests by the table that ``refresh`` fills; it
comes to all workers with the version that ``catalog/overrides.py`` polls.
"""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Sequence
from dataclasses import replace

from tidemark.catalog.overrides import LiveOverrides
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import InvalidRequest, KeyConflict, KeyNotFound
from tidemark.core.grants import ApplicationKey, Grant
from tidemark.core.ports import Clock
from tidemark.dialects.members import missing
from tidemark.features.keys.fields import KeyFields, date_of
from tidemark.features.keys.store import RedisKeys
from tidemark.server.guarding import Announce
from tidemark.server.keyed_auth import ID_CHARACTERS, PREFIX, SECRET_CHARACTERS, KeyTable

MOST_KEYS = 10_000
"""Every worker has all of them in memory, some 1 KB each."""
SECONDS_AN_HOUR = 3600
LETTERS_AND_DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
Described = dict[str, JsonValue]
_NOT_ASKED_FOR = "this server asks for no key, and sends each client's own to its upstream; set auth: {mode: keys}"


class ApplicationKeys:
    """The keys. The store has them; its own state is the worker's table.

    If a docstring does not say otherwise, a method raises ``StoreUnavailable`` when the store did not answer in time;
    nothing was changed then, and the keys that were read last stay in force. Before a change ``announce`` has the audit
    log name the key and its tenant.

    :param model_names: the names of ``model_list``; empty if clients may name any model
    """

    def __init__(
        self,
        store: RedisKeys,
        live: LiveOverrides,
        table: KeyTable,
        *,
        model_names: Sequence[str],
        clock: Clock,
        are_asked_for: bool,
    ) -> None:
        self._store = store
        self._live = live
        self._table = table
        self._model_names = model_names
        self._clock = clock
        self._are_asked_for = are_asked_for
        live.followers.append(self.refresh)

    async def refresh(self) -> None:
        """Read all keys again, and judge requests by them."""
        self._table.use(await self._store.all())

    async def listed(self) -> Described:
        """Return all keys, the oldest first."""
        return {"object": "list", "data": [self._described(key) for key in await self._store.all()]}

    async def shown(self, identifier: str) -> Described:
        """Return one key.

        :raises KeyNotFound: there is none of this id
        """
        return self._described(await self._find(identifier))

    async def create(self, fields: KeyFields, announce: Announce) -> Described:
        """Make a key, and return it with ``key``, which nobody can read again.

        :raises InvalidRequest: it has no name, or has expired already
        :raises KeyConflict: another key has its name, or there are ``MOST_KEYS``
        """
        if fields.name is None:
            raise missing("name")
        secret = _new_secret(_random(ID_CHARACTERS))
        new = fields.over(
            ApplicationKey(
                id=secret[len(PREFIX) :][:ID_CHARACTERS],
                name=fields.name,
                tenant=fields.name,
                digest=self._table.digest_of(secret.encode()),
                created=self._clock(),
            )
        )
        self._check_expiry(new)

        def make(others: Sequence[ApplicationKey]) -> ApplicationKey:
            _check_name(new, others)
            if len(others) >= MOST_KEYS:
                raise KeyConflict(f"There are {MOST_KEYS:,} keys already. Revoke some that nobody uses.")
            return new

        make(await self._store.all())
        await announce(new.id, self._owner_of(new))
        await self._store.add(make)
        await self._live.refresh()
        key: Described = {**self._described(new), "key": secret}
        if not self._are_asked_for:
            key["warnings"] = [*unknown_models(new.models, self._model_names), _NOT_ASKED_FOR]
        return key

    async def change(self, identifier: str, fields: KeyFields, announce: Announce) -> Described:
        """Change what a key may do; its secret stays. Its tenant stays, too: it says whose the conversations are.

        :raises KeyNotFound: there is none of this id
        :raises KeyConflict: another key has the new name
        :raises InvalidRequest: it would have expired already, or would have another tenant
        """
        if fields.tenant is not None:
            raise InvalidRequest("A key stays with its tenant. Make another key for the other one.", param="tenant")
        others = await self._store.all()

        def change(key: ApplicationKey) -> ApplicationKey:
            changed = fields.over(key)
            if changed.expires != key.expires:
                self._check_expiry(changed)
            _check_name(changed, [other for other in others if other.id != identifier])
            return changed

        before = await self._find(identifier)
        change(before)
        await announce(identifier, self._owner_of(before))
        changed = _existing(await self._store.change(identifier, change), identifier)
        await self._live.refresh()
        return self._described(changed)

    async def rotate(self, identifier: str, grace_hours: float, announce: Announce) -> Described:
        """Give a key a new secret, and return it with ``key``; the tenant and all else stay.

        :param grace_hours: how long the secret of before is accepted, too; 0 for not at all
        :raises KeyNotFound: there is none of this id
        :raises KeyConflict: somebody else gave it one at the same moment, which stays
        """
        before = await self._find(identifier)
        await announce(identifier, self._owner_of(before))
        secret = _new_secret(identifier)
        now = self._clock()

        def rotate(key: ApplicationKey) -> ApplicationKey:
            if key.digest != before.digest:
                raise KeyConflict(
                    f"Somebody else has just given {key.name!r} a new secret. Rotate again to replace it."
                )
            return replace(
                key,
                digest=self._table.digest_of(secret.encode()),
                rotated=now,
                former_digest=key.digest if grace_hours else b"",
                former_until=now + grace_hours * SECONDS_AN_HOUR,
            )

        rotated = _existing(await self._store.change(identifier, rotate), identifier)
        await self._live.refresh()
        return {**self._described(rotated), "key": secret}

    async def revoke(self, identifier: str, announce: Announce) -> Described:
        """Remove a key: this worker refuses it at once, all others within a second. Its tenant's data stays.

        :raises KeyNotFound: there is none of this id
        """
        await announce(identifier, self._owner_of(await self._find(identifier)))
        revoked = _existing(await self._store.change(identifier, lambda _: None), identifier)
        await self._live.refresh()
        return {**self._described(revoked), "deleted": True}

    async def _find(self, identifier: str) -> ApplicationKey:
        return _existing(await self._store.find(identifier), identifier)

    def _owner_of(self, key: ApplicationKey) -> str:
        return owner_of(self._table.fingerprint_of(key.tenant))

    def _check_expiry(self, key: ApplicationKey) -> None:
        if key.expires is not None and key.expires <= self._clock():
            raise InvalidRequest(f"'expires' is in the past: {date_of(key.expires)}.", param="expires")

    def _described(self, key: ApplicationKey) -> Described:
        quota = key.quota
        warnings = unknown_models(key.models, self._model_names)
        former = key.former_until if key.former_digest and key.former_until > self._table.now() else None
        return {
            "id": key.id,
            "object": "tidemark.key",
            "name": key.name,
            "tenant": key.tenant,
            "owner": self._owner_of(key),
            "models": [*key.models],
            "expires": date_of(key.expires),
            "expired": key.expires is not None and self._table.now() >= key.expires,
            "created": date_of(key.created),
            "rotated": date_of(key.rotated),
            "former_until": date_of(former),
            "requests_per_minute": quota.requests_per_minute,
            "tokens_per_day": quota.tokens_per_day,
            "concurrent": quota.concurrent,
            **({"warnings": [*warnings]} if warnings else {}),
        }


def unknown_models(models: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return a warning for each model of a key that no entry of ``model_list`` has.

    :param names: the entries' names; empty if clients may name any model
    """
    warnings = []
    for model in models if names else ():
        if "*" in model or Grant("", "", tuple(names)).allows(model):
            continue
        near = difflib.get_close_matches(model, names, n=1)
        mend = f'did you mean "{near[0]}"?' if near else f"known are: {', '.join(names[:5])}"
        warnings.append(f'no entry of model_list has the name "{model}"; {mend}')
    return warnings


def _check_name(key: ApplicationKey, others: Sequence[ApplicationKey]) -> None:
    namesake = next((other for other in others if other.name == key.name), None)
    if namesake is not None:
        raise KeyConflict(
            f"The key {namesake.id} has the name {key.name!r} already. Choose another name; --tenant gives two keys "
            "one tenant, and 'rotate' gives a key a new secret."
        )


def _existing(key: ApplicationKey | None, identifier: str) -> ApplicationKey:
    if key is None:
        raise KeyNotFound(f"There is no key {identifier[:80]!r}. GET /tidemark/keys lists all keys.")
    return key


def _new_secret(identifier: str) -> str:
    return f"{PREFIX}{identifier}{_random(SECRET_CHARACTERS)}"


def _random(characters: int) -> str:
    return "".join(secrets.choice(LETTERS_AND_DIGITS) for _ in range(characters))
