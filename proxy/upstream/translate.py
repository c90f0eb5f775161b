"""The translate lane: a chat request through ``litellm.acompletion``, and its answer back in OpenAI's format.

On the road of a request between the assembly and the relay, for upstreams that do not speak that format. The first
chunk is awaited before anything is answered, so that a refusal keeps its status; afterwards a failure is
``UpstreamBroken``.
Parameters that a provider does not know are dropped, as most LiteLLM proxies are set up to do, because
clients send ``seed`` or ``logit_bias`` without knowing who answers; ``drop_params: false`` in
``litellm_params`` refuses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from proxy.core.conversation.messages import CachedPrefix, JsonValue, render_body, render_messages
from proxy.core.errors import UpstreamError, UpstreamTimedOut
from proxy.core.ports import Caller, Headers, Route, UpstreamReply
from proxy.upstream.answers import error_envelope, text_of, upstream_refused
from proxy.upstream.chunks import StreamedReply, answer_headers, plain
from proxy.upstream.fields import CHAT_FIELDS, ROUTER_FIELDS
from proxy.upstream.headers import beta_values, caller_key
from proxy.upstream.providers import KEYED
from proxy.upstream.refusals import Refusal, refusal_of

JSON = (b"content-type", b"application/json")
UNAUTHORIZED = 401


class Completion(Protocol):
    """``litellm.acompletion``."""

    def __call__(self, **fields: Any) -> Awaitable[Any]:
        """Ask the provider."""
        ...


class WholeReply:
    """An answer that is complete already: not streamed, or a refusal."""

    def __init__(self, status: int, headers: Headers, content: bytes) -> None:
        self.status = status
        self.headers = headers
        self._content = content

    async def body(self) -> AsyncIterator[bytes]:
        """The one piece."""
        yield self._content

    async def close(self) -> None:
        """Nothing is open."""


class TranslateLane:
    """Sends through litellm."""

    def __init__(self, completion: Completion) -> None:
        self._completion = completion

    async def send(self, route: Route, body: bytes, caller: Caller, *, stream: bool) -> UpstreamReply:
        """Send a chat request and wait for the whole answer, or for the first chunk of a streamed one.

        :raises UpstreamUnreachable, UpstreamTimedOut, UpstreamError: there was no answer
        """
        request = _decoded(body)
        asked = {name: value for name, value in request.items() if name in CHAT_FIELDS and value is not None}
        if not stream:
            asked.pop("stream_options", None)
        credential = credential_for(route, caller)
        if isinstance(credential, Refusal):
            return _refused(credential)
        fields = fields_for(route, asked) | credential | {"stream": stream}
        _add_betas(fields, route, caller)
        if stream:  # for each read from the socket, so that a provider's pings count though litellm swallows them
            fields["timeout"] = route.silence_seconds
        try:
            async with asyncio.timeout(route.timeout_seconds):
                answer = await self._completion(**fields)
                if stream:
                    reply = StreamedReply(answer, route, usage=_wants_usage(asked))
                    await reply.begin()
                    return reply
        except TimeoutError as error:
            raise UpstreamTimedOut(
                f"The upstream of {route.name!r} did not answer within {route.timeout_seconds:g} seconds.",
                internal=repr(route),
            ) from error
        except UpstreamError:
            raise
        except Exception as error:  # noqa: BLE001 - litellm raises errors of all kinds for a provider's refusal
            return _refused(refusal_of(error, route))
        headers = (JSON, *answer_headers(answer))
        return WholeReply(200, headers, msgspec.json.encode(plain(answer)))

    async def complete(
        self,
        route: Route,
        messages: Sequence[Mapping[str, JsonValue]],
        caller: Caller,
        *,
        max_tokens: int,
        timeout_seconds: float,
        live: CachedPrefix | None = None,
    ) -> str:
        """One text, not streamed.

        :param live: what goes before ``messages``
        :raises UpstreamError: there was no answer
        :raises SummaryRejected: it holds no text
        """
        credential = credential_for(route, caller)
        if isinstance(credential, Refusal):
            raise upstream_refused(route, credential.status, credential.body)
        asked: dict[str, Any] = {"messages": []}
        if live:
            asked = _decoded(render_body(live.fields, {"messages": render_messages(live.messages)}))
            asked = {name: value for name, value in asked.items() if name in CHAT_FIELDS and value is not None}
        asked |= {"messages": [*asked["messages"], *messages], "max_tokens": max_tokens}
        try:
            async with asyncio.timeout(timeout_seconds):
                fields = fields_for(route, asked) | credential | {"stream": False}
                _add_betas(fields, route, caller)
                answer = await self._completion(**fields)
        except TimeoutError as error:
            raise UpstreamTimedOut(
                f"The upstream of {route.name!r} did not answer within {timeout_seconds:g} seconds."
            ) from error
        except UpstreamError:
            raise
        except Exception as error:
            refusal = refusal_of(error, route)
            raise upstream_refused(route, refusal.status, refusal.body) from error
        return text_of(plain(answer), route)


def _decoded(body: bytes) -> dict[str, Any]:
    """The request. Half a character, which JavaScript leaves where it cuts an emoji, is a question mark to litellm."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        whole: dict[str, Any] = json.loads(json.dumps(json.loads(body), ensure_ascii=False).encode(errors="replace"))
        return whole


def fields_for(route: Route, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for litellm: configured ones first, the request's own over them, the destination last."""
    configured = {name: value for name, value in (route.params or {}).items() if name not in ROUTER_FIELDS}
    fields: dict[str, Any] = {"drop_params": True, **configured, **asked}
    fields |= {
        "model": route.upstream_model,
        "custom_llm_provider": route.provider,
        "timeout": route.timeout_seconds,
        "num_retries": 0,  # a retry is the client's decision; it would double the wait, and the bill
        "max_retries": 0,
    }
    if route.base_url:
        fields["api_base"] = route.base_url
    return fields


def _add_betas(fields: dict[str, Any], route: Route, caller: Caller) -> None:
    """Hand Anthropic's own header on, the one that a client's window may hang on; no other header of it passes."""
    if route.provider == "anthropic" and (betas := beta_values(route, caller)):
        fields["extra_headers"] = {**(fields.get("extra_headers") or {}), "anthropic-beta": ",".join(betas)}


def credential_for(route: Route, caller: Caller) -> dict[str, str] | Refusal:
    """The key of a call: the configured one, else the caller's. Never one that litellm would find by itself.

    Providers that are not ``KEYED`` take theirs from the server's surroundings, which is what their entry in
    ``model_list`` is for; a caller's key means nothing to them.
    """
    if route.api_key is not None:
        return {"api_key": route.api_key}
    if route.provider not in KEYED:
        return {}
    if key := caller_key(caller):
        return {"api_key": key}
    if route.params and any(name.startswith("azure_ad_token") or name == "client_secret" for name in route.params):
        return {}
    message = (
        f"No API key was sent for {route.provider}. Send one as 'Authorization: Bearer KEY', or configure "
        f"litellm_params.api_key for {route.name!r}."
    )
    content = error_envelope(message, kind="invalid_request_error", code="invalid_api_key")
    return Refusal(UNAUTHORIZED, (), content)


def _wants_usage(asked: Mapping[str, Any]) -> bool:
    options = asked.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _refused(refusal: Refusal) -> WholeReply:
    return WholeReply(refusal.status, (JSON, *refusal.headers), refusal.body)
