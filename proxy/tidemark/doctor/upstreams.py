"""Examines upstreams, by one tiny streamed request each: reach, credential, stream, usage, window and clock."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from tidemark.core.errors import TidemarkError, UpstreamUnreachable
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Headers, Route, UpstreamReply
from tidemark.doctor.findings import Finding, Progress, Status
from tidemark.doctor.guard import Guard
from tidemark.worker.worker import Worker

UPSTREAM_SECONDS = 30.0
"""The longest examination of one upstream."""
MOST_MODELS = 32
"""Models that are examined; each costs a request."""
_CONCURRENT = 8
_MOST_SKEW_SECONDS = 60.0
_MAX_BYTES = 262_144
_QUOTED_CHARACTERS = 200
_NEVER_SEEN = "no model is named, so nothing was asked"


@frozen
class _Answer:
    """What an upstream answered."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: bytes) -> str:
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")


async def check_upstreams(
    parts: Worker, caller: Caller, progress: Progress, guard: Guard, names: Sequence[str] = ()
) -> list[Finding]:
    """Examine each named model of the list, or the first one that the only upstream offers.

    :param names: further models, which entries with a pattern may serve
    """
    entries = parts.settings.model_list
    named = list(dict.fromkeys([*names, *(entry.name for entry in entries if "*" not in entry.name)]))
    findings = _unexamined(named, [entry.name for entry in entries if "*" in entry.name], asked=bool(names))
    if not named and not entries and (sole := parts.upstream.sole_route(caller)) is not None:
        offered = await _first_offered(parts, sole, caller)
        if isinstance(offered, Finding):
            return [offered]
        named = [offered]
    if not named and not findings:
        mend = "Name models in model_list, or an upstream by TIDEMARK_UPSTREAM; `tidemark init` writes a file."
        return [Finding("upstream", "warning", _NEVER_SEEN, mend)]
    slots = asyncio.Semaphore(_CONCURRENT)

    async def examined(name: str) -> list[Finding]:
        async with slots:
            progress(f"upstream {name}")
            try:
                route = await parts.upstream.resolve(name)
            except TidemarkError as error:
                return [Finding(f"upstream {name}", "error", str(error), "Correct its litellm_params, or the name.")]
            return await _check(parts, route, caller)

    running = [guard.run(f"upstream {name}", examined(name)) for name in named[:MOST_MODELS]]
    for results in await asyncio.gather(*running):
        findings += results
    return findings


def _unexamined(named: Sequence[str], patterns: Sequence[str], *, asked: bool) -> list[Finding]:
    """Say which entries are not examined."""
    findings = []
    if len(named) > MOST_MODELS:
        detail = f"only the first {MOST_MODELS} of {len(named)} models are asked"
        findings.append(Finding("upstream", "warning", detail, "Name others by --model."))
    if patterns and not asked:
        detail = f"{', '.join(patterns)}: a pattern names no model, so nothing was asked"
        findings.append(Finding("upstream", "warning", detail, "Name a model of each by --model."))
    return findings


async def _first_offered(parts: Worker, route: Route, caller: Caller) -> str | Finding:
    """Return the first model that an upstream lists, or why there is none."""
    check = "upstream"
    try:
        async with asyncio.timeout(UPSTREAM_SECONDS):
            answer = await _read(await parts.upstream.forward(route, "GET", "/models", b"", caller))
        if answer.status == HTTPStatus.OK:
            models = json.loads(answer.body)["data"]
            return str(models[0]["id"])
    except UpstreamUnreachable as error:
        return _unreached(check, error)
    except (TimeoutError, TidemarkError) as error:
        return Finding(check, "error", _reason(error), "Start it, or correct TIDEMARK_UPSTREAM.")
    except (ValueError, KeyError, IndexError, TypeError):
        return Finding(check, "warning", "it lists no model, so nothing was asked", "Name models in model_list.")
    return _refusal(check, answer)


async def _check(parts: Worker, route: Route, caller: Caller) -> list[Finding]:
    check = f"upstream {route.name}"
    try:
        async with asyncio.timeout(UPSTREAM_SECONDS):
            answer = await _ask(parts, route, caller)
            window = (await parts.catalog.profile(route, caller)).window
    except UpstreamUnreachable as error:
        return [_unreached(check, error)]
    except (TimeoutError, TidemarkError) as error:
        mend = "Check that it runs, and check api_base; a firewall or a proxy may be in the way."
        return [Finding(check, "error", _reason(error), mend)]
    if answer.status != HTTPStatus.OK:
        return [_refusal(check, answer), *_clock(check, answer)]
    findings = [_stream_finding(check, answer)]
    if window.source == "default":
        mend = "State max_input_tokens in the entry's model_info, or learn it from the first overflow."
        detail = f"its window is unknown; {window.window:,} tokens are assumed"
        findings.append(Finding(check, "warning", detail, mend))
    return [*findings, *_clock(check, answer)]


async def _ask(parts: Worker, route: Route, caller: Caller) -> _Answer:
    """Send one request for one token; a newer name of its bound is tried if the older one is refused."""
    answer = await _send(parts, route, caller, "max_tokens")
    if answer.status == HTTPStatus.BAD_REQUEST and b"max_tokens" in answer.body:
        return await _send(parts, route, caller, "max_completion_tokens")
    return answer


async def _send(parts: Worker, route: Route, caller: Caller, bound: str) -> _Answer:
    fields = {
        "model": route.upstream_model,
        "messages": [{"role": "user", "content": "Say yes."}],
        bound: 1 if bound == "max_tokens" else 16,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body = json.dumps(fields).encode()
    return await _read(await parts.upstream.send(route, body, caller, dialect=parts.chat, stream=True))


async def _read(reply: UpstreamReply) -> _Answer:
    """Read a reply, up to a bound."""
    body = b""
    try:
        async for piece in reply.body():
            body += piece
            if len(body) > _MAX_BYTES:
                break
    finally:
        await reply.close()
    return _Answer(reply.status, reply.headers, body)


def _stream_finding(check: str, answer: _Answer) -> Finding:
    """Say whether an answer came as a stream, and with usage."""
    events = [line[5:].strip() for line in answer.body.split(b"\n") if line.startswith(b"data:")]
    chunks = [chunk for event in events if event != b"[DONE]" and isinstance(chunk := _json(event), Mapping)]
    if not chunks:
        mend = "Clients that ask for a stream get a whole answer; check api_base, and any gateway before it."
        return Finding(check, "warning", "it answers, and does not stream", mend)
    if not any(chunk.get("usage") for chunk in chunks):
        mend = "Counts stay local and exact for known tokenizers; provider counts are missing in the history."
        return Finding(check, "warning", "it answers and streams, and reports no usage", mend)
    return Finding(check, "ok", "it answers, accepts the credential, streams and reports usage")


def _refusal(check: str, answer: _Answer) -> Finding:
    """Say what an error status means, in the upstream's own words."""
    status: Status = "error"
    match answer.status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            mend = "Set a valid api_key for it, or OPENAI_API_KEY where clients bring their own."
        case HTTPStatus.NOT_FOUND:
            mend = "Correct the model's name, or api_base: it usually ends in /v1."
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.PAYMENT_REQUIRED:
            status, mend = "warning", "Look at the account's quota; try again later."
        case _:
            mend = "Look at the upstream's log."
    return Finding(check, status, f"it answers {answer.status}: {_message(answer.body)}", mend)


def _clock(check: str, answer: _Answer) -> list[Finding]:
    """Compare this machine's clock with the upstream's."""
    try:
        there = email.utils.parsedate_to_datetime(answer.header(b"date")).timestamp()
    except (ValueError, TypeError):
        return []
    skew = abs(there - time.time())
    if skew < _MOST_SKEW_SECONDS:
        return []
    detail = f"the clocks of this machine and of {check} are {skew:.0f} s apart"
    return [Finding("clock", "warning", detail, "Set this machine's clock by NTP.")]


def _message(body: bytes) -> str:
    """Return the message of an error body on one line, shortened."""
    fields = _json(body)
    error = fields.get("error", fields) if isinstance(fields, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    text = message if isinstance(message, str) else body.decode("utf-8", "replace")
    return " ".join(text.split())[:_QUOTED_CHARACTERS]


def _json(text: bytes) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _unreached(check: str, error: UpstreamUnreachable) -> Finding:
    return Finding(check, "error", error.fault, f"{error.mend[0].upper()}{error.mend[1:]}.")


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TidemarkError) else f"no answer within {UPSTREAM_SECONDS:.0f} s"
