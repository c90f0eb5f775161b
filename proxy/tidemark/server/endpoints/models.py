"""``GET /v1/models`` and ``/v1/models/{id}``: the models of configuration and upstream, as each SDK reads them.

A request with ``anthropic-version`` gets Anthropic's format, any other one OpenAI's. Sources: OpenAI API reference,
"Models"; Anthropic API reference, "List Models" and "Get a Model".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.errors import InvalidRequest, ModelNotFound
from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator, Caller
from tidemark.dialects.openai_errors import OPENAI_ERRORS
from tidemark.server.allowed_models import allowed_entries
from tidemark.server.responses import to_json, with_error_envelope

VERSION = "anthropic-version"
"""The header that every client of Anthropic's API sends."""
MAX_LIMIT = 1000
"""The most models of a page."""
MAX_LIMIT_DIGITS = 6
"""Longer numbers are refused unread: Python refuses to read those of thousands of digits."""
Entry = Mapping[str, JsonValue]


@frozen
class ModelEndpoints:
    """Serves the list of models."""

    models: Callable[[Caller], Awaitable[Mapping[str, JsonValue]]]
    """Returns the models that a caller may use, as ``Catalog.models`` does."""
    auth: Authenticator
    anthropic_errors: ErrorFormat
    """The format of errors for requests with ``anthropic-version``."""

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/models", self._list),
            Route("/v1/models/{model:path}", self._describe),
        ]

    async def _list(self, request: Request) -> Response:
        return await with_error_envelope(self._answer_list, self._errors_for(request))(request)

    async def _describe(self, request: Request) -> Response:
        return await with_error_envelope(self._answer_one, self._errors_for(request))(request)

    def _errors_for(self, request: Request) -> ErrorFormat:
        return self.anthropic_errors if VERSION in request.headers else OPENAI_ERRORS

    async def _answer_list(self, request: Request) -> Response:
        models = await self._models(request)
        return to_json(_page(request, _entries(models)) if VERSION in request.headers else models)

    async def _answer_one(self, request: Request) -> Response:
        name = request.path_params["model"]
        for entry in _entries(await self._models(request)):
            if entry.get("id") == name:
                return to_json(anthropic_entry(entry) if VERSION in request.headers else entry)
        raise ModelNotFound(f"The model {name[:200]!r} does not exist. GET /v1/models lists all models.")

    async def _models(self, request: Request) -> Mapping[str, JsonValue]:
        """Return the models that a request's caller may use."""
        caller = self.auth.caller(request.headers.raw)
        models = await self.models(caller)
        listed = models["data"]
        if not caller.is_restricted or not isinstance(listed, list):
            return models
        return {**models, "data": allowed_entries(listed, caller)}


def anthropic_entry(entry: Entry) -> Entry:
    """Return a model in Anthropic's format; members that it already has stay.

    A date that nobody knows is the beginning of 1970, as the reference allows.
    """
    created = entry.get("created")
    seconds = created if isinstance(created, int) and 0 <= created < 2**35 else 0
    form: dict[str, JsonValue] = {
        "type": "model",
        "id": entry["id"],
        "display_name": entry["id"],
        "created_at": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
    }
    if (window := entry.get("max_input_tokens", entry.get("context_length"))) is not None:
        form["max_input_tokens"] = window
    if (reply := entry.get("max_output_tokens")) is not None:
        form["max_tokens"] = reply
    if entry.get("type") == "model":  # an upstream of Anthropic's
        return {**form, **entry}
    return form


def _page(request: Request, entries: list[Entry]) -> Mapping[str, JsonValue]:
    """Return the page of the list that a request asks for; without a limit it is the whole list.

    :raises InvalidRequest: the limit is no number of models
    """
    ids = [entry["id"] for entry in entries]
    start, end = 0, len(entries)
    after, before = request.query_params.get("after_id"), request.query_params.get("before_id")
    if after in ids:
        start = ids.index(after) + 1
    if before in ids:
        end = ids.index(before)
    limit = request.query_params.get("limit", str(MAX_LIMIT))
    if not limit.isdecimal() or len(limit) > MAX_LIMIT_DIGITS or not 1 <= int(limit) <= MAX_LIMIT:
        raise InvalidRequest(f"'limit' must be a whole number from 1 to {MAX_LIMIT}.", param="limit")
    is_backward = before is not None and after is None
    page = entries[start:end][-int(limit) :] if is_backward else entries[start:end][: int(limit)]
    has_more = len(page) < end - start
    listed: list[JsonValue] = [dict(anthropic_entry(entry)) for entry in page]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return {"data": listed, "has_more": has_more, **ends}


def _entries(models: Mapping[str, JsonValue]) -> list[Entry]:
    entries = models["data"]
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
