"""``/console/keys``: the keys of clients, which are made, given new secrets and revoked here.

It does what ``/tidemark/keys`` and ``tidemark keys`` do. A new secret is on the page that answers its form, and nowhere
after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from tidemark.console.pages import Answer
from tidemark.console.visit import Visit, go_to, words_for_form
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest, KeyConflict
from tidemark.core.frozen import frozen
from tidemark.features.keys.fields import GRACE, QUOTAS, read_fields, read_grace
from tidemark.features.keys.service import ApplicationKeys, Described
from tidemark.server.errors import status_of

KEYS = "/console/keys"
TEXTS: Mapping[str, tuple[str, str]] = {
    "name": ("Name", "the key's own"),
    "tenant": ("Tenant", "whose the conversations are; empty: the name"),
    "models": ("Models", "with commas between, * for any text; empty: all"),
    "expires": ("Expires", "as 2030-12-31, midnight of UTC; empty: never"),
    "requests_per_minute": ("Requests a minute", "empty: no bound"),
    "tokens_per_day": ("Tokens a day", "empty: no bound"),
    "concurrent": ("Requests at once", "empty: no bound"),
}
"""The fields of the form: their labels and hints."""


@frozen
class KeyPages:
    """Shows and changes keys, as the operator."""

    keys: ApplicationKeys
    typed: Callable[[str], JsonValue]
    """Returns the value of a typed text, as the command line reads it."""
    are_asked_for: bool
    """Whether clients need keys (``auth.mode: keys``)."""

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        return [
            ("GET", KEYS, self._list),
            ("POST", KEYS, self._create),
            ("GET", KEYS + "/{id}", self._show),
            ("POST", KEYS + "/{id}/rotate", self._rotate),
            ("POST", KEYS + "/{id}/revoke", self._revoke),
        ]

    async def _list(self, visit: Visit) -> Response:
        return await self._page(visit, revoked=visit.parameter("revoked"))

    async def _create(self, visit: Visit) -> Response:
        entered = {name: visit.form.get(name, "").strip() for name in TEXTS}
        try:
            return _with_secret(visit, await self.keys.create(read_fields(self._read(entered)), visit.announce))
        except (InvalidRequest, KeyConflict) as error:
            param = error.param if isinstance(error, InvalidRequest) else "name"
            words = words_for_form(error)
            return await self._page(visit, status_of(error), entered=entered, error=words, param=param)

    async def _show(self, visit: Visit) -> Response:
        return visit.page("key.html", key=await self.keys.shown(visit.request.path_params["id"]), secret="", error="")

    async def _rotate(self, visit: Visit) -> Response:
        identifier = visit.request.path_params["id"]
        try:
            hours = read_grace({GRACE: self.typed(visit.form.get(GRACE, "").strip() or "0")})
            return _with_secret(visit, await self.keys.rotate(identifier, hours, visit.announce))
        except (InvalidRequest, KeyConflict) as error:
            key = await self.keys.shown(identifier)
            return visit.page("key.html", status_of(error), key=key, secret="", error=words_for_form(error))

    async def _revoke(self, visit: Visit) -> Response:
        key = await self.keys.revoke(visit.request.path_params["id"], visit.announce)
        return go_to(KEYS, revoked=str(key["name"]))

    async def _page(self, visit: Visit, status: int = 200, **values: Any) -> Response:
        listed: Any = (await self.keys.listed())["data"]
        facts = {"entered": {}, "error": "", "param": "", "revoked": "", "are_asked_for": self.are_asked_for}
        return visit.page("keys.html", status, keys=listed, fields=TEXTS, **{**facts, **values})

    def _read(self, entered: Mapping[str, str]) -> dict[str, JsonValue]:
        """Return what a form says of a key, as the API takes it."""
        fields: dict[str, JsonValue] = {name: text for name, text in entered.items() if text}
        fields |= {name: self.typed(entered[name]) for name in QUOTAS if entered[name]}
        if entered["models"]:
            fields["models"] = [name.strip() for name in entered["models"].split(",")]
        return fields


def _with_secret(visit: Visit, key: Described) -> Response:
    """Return the page of a key with its new secret."""
    secret = key.pop("key")
    return visit.page("key.html", key=key, secret=secret, error="")
