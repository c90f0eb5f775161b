"""The translate lane sends a chat request through ``litellm.acompletion`` and returns its answer in OpenAI's format.

It stands between assembly and relay, for upstreams that do not speak that format. The lane waits for the first chunk
before it answers, so that a refusal keeps its status; a later failure is ``UpstreamBroken``. Parameters that a provider
does not know are dropped, as most LiteLLM proxies are set up to do, because clients send ``seed`` or ``logit_bias``
without knowing which provider answers. ``drop_params: false`` in ``litellm_params`` makes them an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError
from tidemark.core.ports import Caller, Headers, Route, TextRequest, UpstreamReply
from tidemark.dialects.bodies import array_of, body_of
from tidemark.upstream.answer_bounds import AnswerBounds
from tidemark.upstream.answers import error_envelope
from tidemark.upstream.chunks import StreamedReply, answer_headers, plain
from tidemark.upstream.errors import TIMEOUT_REMEDY, refused, timed_out
from tidemark.upstream.fields import BESIDE_OPENAIS, CHAT_FIELDS, ROUTER_FIELDS, WRITTEN_BY_LITELLM
from tidemark.upstream.headers import beta_values, caller_key, headers_beside_sdk, trace_context_of
from tidemark.upstream.providers import KEYED
from tidemark.upstream.refusals import Refusal, refusal_of

JSON = (b"content-type", b"application/json")
UNAUTHORIZED = 401
NO_KEY = "none"
"""The key for a server of OpenAI's format if the client sends none: litellm would take one from the environment."""


class WholeReply:
    """An answer that is already complete: not streamed, or a refusal."""

    def __init__(self, status: int, headers: Headers, content: bytes) -> None:
        self.status = status
        self.headers = headers
        self._content = content

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the whole body in one piece."""
        yield self._content

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


class TranslateLane:
    """Sends requests through litellm.

    :param completion: ``litellm.acompletion``
    :param bounds: those of an answer
    """

    def __init__(self, completion: Callable[..., Awaitable[Any]], bounds: AnswerBounds | None = None) -> None:
        self._completion = completion
        self._bounds = bounds or AnswerBounds()

    async def send(self, route: Route, body: bytes, caller: Caller, *, stream: bool) -> UpstreamReply:
        """Send a chat request and wait for the whole answer, or for the first chunk of a streamed one.

        :raises UpstreamUnreachable, UpstreamTimedOut, UpstreamError: there was no answer
        """
        request = decode_request(body)
        arguments = arguments_of(route, request)
        if not stream:
            arguments.pop("stream_options", None)
        credential = credential_for(route, caller)
        if isinstance(credential, Refusal):
            return _refusal_reply(credential)
        fields = fields_for(route, arguments) | credential | {"stream": stream}
        add_headers(fields, route, caller)
        if stream:  # the limit of each read from the socket; litellm hides a provider's pings, but they count here
            fields["timeout"] = route.silence_seconds
        try:
            async with asyncio.timeout(route.timeout_seconds):
                answer = await self._completion(**fields)
                if stream:
                    reply = StreamedReply(answer, route, self._bounds, usage=_wants_usage(arguments))
                    await reply.begin()
                    return reply
        except TimeoutError as error:
            raise timed_out(route, route.timeout_seconds, TIMEOUT_REMEDY) from error
        except UpstreamError:
            raise
        except Exception as error:  # noqa: BLE001 - litellm raises errors of all kinds for a provider's refusal
            return _refusal_reply(refusal_of(error, route))
        headers = (JSON, *answer_headers(answer))
        return WholeReply(200, headers, msgspec.json.encode(plain(answer)))

    async def complete(self, route: Route, request: TextRequest, caller: Caller) -> JsonValue:
        """Return the chat completion with one short text.

        :raises UpstreamError: there was no answer
        """
        credential = credential_for(route, caller)
        if isinstance(credential, Refusal):
            raise refused(route, credential.status, credential.body)
        arguments: dict[str, Any] = {"messages": []}
        if (prefix := request.cached_prefix) is not None:
            body = decode_request(body_of(prefix.fields, {"messages": array_of(prefix.raws)}))
            arguments = arguments_of(route, body)
        arguments |= {"messages": [*arguments["messages"], *request.messages], "max_tokens": request.max_tokens}
        try:
            async with asyncio.timeout(request.timeout_seconds):
                fields = fields_for(route, arguments) | credential | {"stream": False}
                add_headers(fields, route, caller)
                answer = await self._completion(**fields)
        except TimeoutError as error:
            raise timed_out(route, request.timeout_seconds) from error
        except UpstreamError:
            raise
        except Exception as error:  # litellm raises errors of all kinds for a provider's refusal
            refusal = refusal_of(error, route)
            raise refused(route, refusal.status, refusal.body) from error
        return plain(answer)


def decode_request(body: bytes) -> dict[str, Any]:
    """Return the decoded request.

    litellm gets a question mark for a lone surrogate, which JavaScript makes when it cuts an emoji in two.
    """
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        request: dict[str, Any] = json.loads(json.dumps(json.loads(body), ensure_ascii=False).encode(errors="replace"))
        return request


def arguments_of(route: Route, request: Mapping[str, Any], members: frozenset[str] = CHAT_FIELDS) -> dict[str, Any]:
    """Return the members of a request that litellm gets.

    An upstream of OpenAI's format gets all others beside them, as it would without litellm: ``extra_body`` becomes part
    of the request's body and steers nothing in litellm.
    """
    if route.speaks_openai:
        members -= BESIDE_OPENAIS
    arguments = {name: value for name, value in request.items() if name in members and value is not None}
    if route.speaks_openai:
        arguments["allowed_openai_params"] = [name for name in arguments if name != "messages"]
        others = {name: value for name, value in request.items() if name not in members | WRITTEN_BY_LITELLM}
        configured = (route.params or {}).get("extra_body")
        if others:
            arguments["extra_body"] = {**(configured if isinstance(configured, Mapping) else {}), **others}
    return arguments


def fields_for(route: Route, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for litellm: the request's own replace configured ones, the destination replaces both."""
    configured = {name: value for name, value in (route.params or {}).items() if name not in ROUTER_FIELDS}
    fields: dict[str, Any] = {"drop_params": True, **configured, **arguments}
    model, provider = route.upstream_model, route.provider
    fields |= {
        # litellm removes the provider's name once, which may be the beginning of the model's own name at a server
        "model": f"{provider}/{model}" if route.speaks_openai and model.startswith(f"{provider}/") else model,
        "custom_llm_provider": route.provider,
        "timeout": route.timeout_seconds,
        "num_retries": 0,  # the client decides whether to retry; a retry here would double wait and bill
        "max_retries": 0,
    }
    if route.base_url:
        fields["api_base"] = route.base_url
    return fields


def add_headers(fields: dict[str, Any], route: Route, caller: Caller) -> None:
    """Pass on the few headers of a client that go through litellm.

    They are its trace context, and ``anthropic-beta``, which can change a model's window. An upstream that would get
    the client's bytes without ``transport.lane`` gets all but those that the SDK beneath litellm writes itself.
    """
    passed = headers_beside_sdk(route, caller) if route.takes_bytes else {}
    passed |= trace_context_of(caller)
    if route.provider == "anthropic" and (betas := beta_values(route, caller)):
        passed["anthropic-beta"] = ",".join(betas)
    if passed:
        fields["extra_headers"] = {**(fields.get("extra_headers") or {}), **passed}


def credential_for(route: Route, caller: Caller) -> dict[str, str] | Refusal:
    """Return the key of a call: the configured one, else the caller's, and never one that litellm finds by itself.

    Providers that are not ``KEYED`` take their credentials from the server's environment, which their entry in
    ``model_list`` allows. They have no use for a caller's key.
    """
    if route.api_key is not None:
        return {"api_key": route.api_key}
    if route.provider not in KEYED and not route.speaks_openai:
        return {}
    if key := caller_key(caller):
        return {"api_key": key}
    if route.speaks_openai:
        return {"api_key": NO_KEY}
    if route.params and any(name.startswith("azure_ad_token") or name == "client_secret" for name in route.params):
        return {}
    message = (
        f"No API key was sent for {route.provider}. Send one as 'Authorization: Bearer KEY', or configure "
        f"litellm_params.api_key for {route.name!r}."
    )
    content = error_envelope(message, kind="invalid_request_error", code="invalid_api_key")
    return Refusal(UNAUTHORIZED, (), content)


def _wants_usage(arguments: Mapping[str, Any]) -> bool:
    options = arguments.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _refusal_reply(refusal: Refusal) -> WholeReply:
    return WholeReply(refusal.status, (JSON, *refusal.headers), refusal.body)
