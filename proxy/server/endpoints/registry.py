"""``/tidemark/models``: the registry of models, read by whoever reaches the port and changed by the operator.

Beside the road of a request; the registry behind it is the same that ``tidemark models`` uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proxy.core.conversation.messages import JsonValue
from proxy.core.conversation.prefix import owner_of
from proxy.core.ports import Authenticator, Caller
from proxy.dialects.raw_json import decoded, members
from proxy.server.asgi import read_body
from proxy.server.encodings import decoded_body
from proxy.server.endpoints.ops import as_json, told
from proxy.server.operator import OperatorAccess

MAX_BODY_BYTES = 65_536
Described = Mapping[str, JsonValue]


class ModelRegistryPort(Protocol):
    """The registry. A model is named by its id, ``provider:model``, or by the name that clients use.

    ``owner`` says whose calibrations are shown; None is the operator's view. Every method raises
    ``StoreUnavailable`` when the store did not answer, all but the first ``ModelNotFound``.
    """

    async def listed(self, caller: Caller, owner: str | None) -> Described:
        """All models."""
        ...

    async def described(self, name: str, caller: Caller, owner: str | None) -> Described:
        """One model."""
        ...

    async def change(self, name: str, said: Mapping[str, JsonValue], caller: Caller, owner: str | None) -> Described:
        """Set some of its fields.

        :raises InvalidRequest: a field is unknown, of another type or out of range
        """
        ...

    async def reset(self, name: str, caller: Caller, owner: str | None) -> Described:
        """Take back all that was set of it."""
        ...


@dataclass(frozen=True, slots=True)
class RegistryEndpoints:
    """The endpoints of the registry; docs/wire.md lists the paths."""

    registry: ModelRegistryPort
    auth: Authenticator
    access: OperatorAccess

    def routes(self) -> list[BaseRoute]:
        """One path with a method for each thing to do."""
        one = "/tidemark/models/{model:path}"
        return [
            Route("/tidemark/models", told(self._list), methods=["GET"]),
            Route(one, told(self._one), methods=["GET"]),
            Route(one, told(self._change), methods=["PUT"]),
            Route(one, told(self._reset), methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        return as_json(await self.registry.listed(*self._asking(request)))

    async def _one(self, request: Request) -> Response:
        return as_json(await self.registry.described(request.path_params["model"], *self._asking(request)))

    async def _change(self, request: Request) -> Response:
        self.access.require(request)
        body = await read_body(request.receive, request.headers.raw, MAX_BODY_BYTES)
        body = await decoded_body(body, request.headers.raw, MAX_BODY_BYTES)
        said = {name: decoded(raw, name) for name, raw in members(body).items()}
        caller, owner = self._asking(request)
        return as_json(await self.registry.change(request.path_params["model"], said, caller, owner))

    async def _reset(self, request: Request) -> Response:
        self.access.require(request)
        return as_json(await self.registry.reset(request.path_params["model"], *self._asking(request)))

    def _asking(self, request: Request) -> tuple[Caller, str | None]:
        """Who asks, and whose calibrations they see (promise 8): their own, or the newest of all as the operator.

        The caller's key goes along where a server is asked for its window; the admin token never does.
        """
        caller = self.auth.caller(request.headers.raw)
        if not self.access.grants(request):
            return caller, owner_of(caller.fingerprint)
        return (caller if self.access.token is None else Caller(b"", ())), None
