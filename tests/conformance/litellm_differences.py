"""Every difference that ``transport.lane: litellm`` makes, by name, with its reason.

The names are those that ``found`` gives. test_litellm.py fails for a difference that is not listed, and for one that is
listed and that no case shows any more. ``docs/wire.md`` tells users the same.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.cases import Case
from tests.conformance.conftest import Seen
from tests.conformance.differences import CONNECTION_HEADERS, REQUEST_HEADERS, RESPONSE_HEADERS, Lines, compared
from tests.conformance.sdk_types import events_of
from tests.support.scripted import Received

LITELLM: Mapping[str, str] = {
    "request header accept": "the SDK beneath litellm writes its own",
    "request header user-agent": "the same",
    "request header x-stainless-*": "the same",
    "request header authorization": "a key that comes in another header goes out as a bearer, too, as on the wire lane",
    "request query": "litellm's call has no place for it",
    "request bytes": "litellm gets values and writes JSON of its own: without white space, doubled members, escapes",
    "request dialect": "litellm is called for chat completions; test_bridged.py compares meanings",
    "answer header request-id": "also as x-request-id, the name in OpenAI's format; a bridge has that name alone",
    "answer header x-request-id": "the same",
    "answer header content-type": "a bridge names the charset of a stream",
    "answer header set-cookie": "litellm hands on what a client acts on: the request's id, times to wait, rate limits",
    "answer header content-encoding": "litellm decompresses an answer",
    "answer header etag": "as set-cookie",
    "answer header vary": "as set-cookie",
    "answer header warning": "as set-cookie",
    "answer header x-note": "as set-cookie",
    "answer bytes": "litellm reads values and Tidemark writes JSON of its own; comments of a stream are left out",
    "answer empty members": "members that are null or [] are left out, as in every answer through litellm",
    "answer dialect": "the answer comes in chat completions; test_bridged.py compares meanings",
    "answer created": "litellm gives a stream the time at which it came",
    "answer choices.*.delta.tool_calls.*.type": "litellm says function in every piece of a call",
    "answer error": "an error inside a stream has Tidemark's code upstream_incomplete, with the upstream's words",
    "embedding without input": "Tidemark refuses it, since litellm's call needs one",
    "answer values of an embedding": "what is no list of embeddings is written as an empty one",
}
"""Differences from an upstream that is asked straight, beside those that any Tidemark makes (``differences.py``)."""
OWN_WARNING = "ignore:Accessing the 'model_:DeprecationWarning"
"""litellm reads its own models as pydantic will not allow; it may, so long as pydantic only warns."""
GZIP = b"\x1f\x8b"
EMBEDDINGS = "/v1/embeddings"
HEADERS_OF_A_KIND = ("x-stainless-",)


def found(case: Case, straight: tuple[Seen, Received], through: tuple[Seen, Received]) -> set[str]:
    """Name the differences between what both ends of two ways got."""
    (seen, asked), (seen_through, asked_through) = straight, through
    is_understood = bool(case.dialect) or case.path == EMBEDDINGS
    expected = REQUEST_HEADERS if is_understood else CONNECTION_HEADERS
    names = set(_headers("request", asked.lines, asked_through.lines, expected))
    names |= set(_headers("answer", seen.headers, seen_through.headers, RESPONSE_HEADERS))
    if asked.query != asked_through.query:
        names.add("request query")
    names |= _requests(asked, asked_through)
    if seen.body == seen_through.body:
        return names
    names.add("answer bytes")
    if case.dialect not in ("chat", ""):
        return names | {"answer dialect"}
    if case.dialect == "":
        return names | {"answer values of an embedding"}
    was, now = (_values(answer.body, streams=case.streams and answer.status == 200) for answer in (seen, seen_through))
    return names | {f"answer {path}" for path in _members(was, now, "")}


def _requests(asked: Received, through: Received) -> set[str]:
    if asked.body == through.body:
        return set()
    if asked.path != through.path:
        return {"request bytes", "request dialect"}
    was, now = json.loads(asked.body), json.loads(through.body)
    return {"request bytes", *(f"request {path}" for path in _members(was, now, ""))}


def _headers(whose: str, was: Lines, now: Lines, differences: Mapping[str, str]) -> Iterator[str]:
    """Name the headers that are not the same on both ways."""
    before, after = compared(was, differences), compared(now, differences)
    for name in {name for name, _ in (*before, *after)}:
        if [line for line in before if line[0] == name] != [line for line in after if line[0] == name]:
            kind = next((kind for kind in HEADERS_OF_A_KIND if name.startswith(kind)), None)
            yield f"{whose} header {f'{kind}*' if kind else name}"


def _values(body: bytes, *, streams: bool) -> Any:
    if body.startswith(GZIP):
        body = gzip.decompress(body)
    if not streams:
        return json.loads(body)
    return events_of(body.replace(b"data:{", b"data: {"))


def _members(was: Any, now: Any, path: str) -> Iterator[str]:
    """Yield the paths of members that differ; a place in a list is ``*``."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in was.keys() | now.keys():
            if name not in now and was[name] in (None, []):
                yield "empty members"
            else:
                below = f"{path}.{name}" if path else name
                yield from _members(was.get(name), now.get(name), "error" if below.startswith("error") else below)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for before, after in zip(was, now, strict=True):
            yield from _members(before, after, f"{path}.*" if path else "")
    elif was != now:
        yield path or "values"
