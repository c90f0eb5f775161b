"""Sends embeddings and reranking through litellm, for providers that do not speak OpenAI's format.

``upstream.py`` calls it for requests that are carried without being understood. The translate lane does the same for
chat. Sources: OpenAI API reference, "Create embeddings"; litellm's ``aembedding`` and ``arerank``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from tidemark.core.errors import InvalidRequest, UpstreamError
from tidemark.core.ports import Caller, Route, UpstreamReply
from tidemark.upstream.chunks import answer_headers
from tidemark.upstream.errors import TIMEOUT_REMEDY, timed_out
from tidemark.upstream.refusals import Refusal, refusal_of
from tidemark.upstream.translate import (
    JSON,
    WholeReply,
    add_headers,
    arguments_of,
    credential_for,
    decode_request,
    fields_for,
)

CALLS: Mapping[str, tuple[str, frozenset[str]]] = {
    "/embeddings": ("aembedding", frozenset({"input", "dimensions", "encoding_format", "user"})),
    "/rerank": (
        "arerank",
        frozenset({"query", "documents", "top_n", "rank_fields", "return_documents", "max_tokens_per_doc"}),
    ),
}
"""By path below the base URL: litellm's function, and the members of the request that it takes."""
CALLS_OF_OPENAI = frozenset({"/embeddings"})
"""Those that litellm has for OpenAI's format; it ranks for named providers only."""
REQUIRED: Mapping[str, tuple[str, ...]] = {"/embeddings": ("input",), "/rerank": ("query", "documents")}


def is_served(route: Route, method: str, path: str, *, alone: bool) -> bool:
    """Return whether litellm serves a request.

    :param alone: whether nothing but litellm reaches the upstream; else only what it serves for every upstream of
        OpenAI's format goes through it, and the rest as bytes
    """
    calls = CALLS if alone else CALLS_OF_OPENAI if route.speaks_openai else ()
    return method == "POST" and path.partition("?")[0] in calls


class OtherCalls:
    """Sends requests; it has no state.

    :param call: calls one of litellm's functions by its name
    """

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    async def send(self, route: Route, path: str, body: bytes, caller: Caller) -> UpstreamReply:
        """Send a request and wait for the whole answer.

        :param path: one that ``is_served`` accepts
        :raises InvalidRequest: a member is missing
        :raises UpstreamTimedOut, UpstreamError: there was no answer
        """
        place = path.partition("?")[0]
        function, members = CALLS[place]
        request = decode_request(body)
        for name in REQUIRED[place]:
            if request.get(name) is None:
                message = f"Missing required parameter: '{name}'."
                raise InvalidRequest(message, param=name, code="missing_required_parameter")
        credential = credential_for(route, caller)
        if isinstance(credential, Refusal):
            return _reply(credential)
        arguments = arguments_of(route, request, members)
        fields = fields_for(route, arguments) | credential
        add_headers(fields, route, caller)
        if function == "arerank" and (lines := fields.get("extra_headers")):
            fields["headers"] = lines  # for most providers litellm reads only this name there
        try:
            async with asyncio.timeout(route.timeout_seconds):
                answer = await self._call(function, **fields)
        except TimeoutError as error:
            raise timed_out(route, route.timeout_seconds, TIMEOUT_REMEDY) from error
        except UpstreamError:
            raise
        except Exception as error:  # noqa: BLE001 - litellm raises errors of all kinds for a provider's refusal
            return _reply(refusal_of(error, route))
        content = msgspec.json.encode(answer.model_dump(mode="json", exclude_none=True))
        return WholeReply(200, (JSON, *answer_headers(answer)), content)


def _reply(refusal: Refusal) -> WholeReply:
    return WholeReply(refusal.status, (JSON, *refusal.headers), refusal.body)
