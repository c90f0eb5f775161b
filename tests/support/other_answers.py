"""The scripted upstream's other endpoints: counts, stored responses, models, and an echo for the rest of ``/v1``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from tests.support import messages_answers, responses_answers
from tests.support.answers import SSE_HEADERS, Answer, Json, Received, Script, sse
from tests.support.chat_answers import error

COUNT = 42
"""The count of every request that asks for one."""
ECHOED = {
    *("audio", "batches", "containers", "conversations", "embeddings", "evals", "files", "fine_tuning", "images"),
    *("moderations", "rerank", "skills", "threads", "uploads", "vector_stores", "videos"),
}
"""The first segments after ``/v1/`` of paths that are echoed for every method; others are for ``POST`` only."""


def tail(request: Received) -> str:
    """The path after ``/v1/``."""
    return request.path.partition("/v1/")[2]


def echo(request: Received) -> Answer:
    """What the upstream got, as JSON; as three events for JSON that asks for a stream, and bytes for other bytes."""
    kind = request.headers.get("content-type", "")
    seen = {
        "object": "echo",
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "content_type": kind,
        "length": len(request.body),
        "sha256": hashlib.sha256(request.body).hexdigest(),
    }
    if kind == "application/octet-stream":
        return Answer([request.body], headers=[(b"content-type", b"application/octet-stream")])
    if kind == "application/json" and request.body and request.json.get("stream"):
        pieces = [sse("echo", {**seen, "number": number}) for number in range(3)]
        return Answer([*pieces, b"data: [DONE]\n\n"], headers=list(SSE_HEADERS))
    return Answer([json.dumps(seen).encode()])


class OtherEndpoints:
    """Answers what is no generation.

    ``kept`` holds the responses that a script answered with, by id; None for an upstream that keeps none. ``counts``
    answers requests to count, in place of the fixed count, and ``compacts`` those of ``/responses/compact``.
    ``refuses_deletions`` is an outage of deletions, and ``props`` what llama.cpp tells of itself. ``documents`` are
    what other servers tell, by path.
    """

    def __init__(self) -> None:
        self.models: Json = {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "tests"}]}
        self.kept: dict[str, Json] | None = {}
        self.counts: Script | None = None
        self.compacts: Script | None = None
        self.refuses_deletions = False
        self.props: Json | None = None
        self.documents: dict[str, Callable[[], Json]] = {}

    def answer(self, request: Received) -> Answer | None:
        """The answer, or None for what the script answers."""
        path = tail(request)
        first, _, rest = path.partition("/")
        fixed = _COUNTS.get(path)
        own = self.counts if fixed is not None else self.compacts if path == "responses/compact" else None
        if own is not None or fixed is not None:
            return own(request) if own is not None else fixed and fixed(COUNT)
        if first == "responses" and rest:
            return self._stored(request.method, *rest.partition("/")[::2])
        if first == "responses" and self.kept is None and request.json.get("previous_response_id"):
            return error(400, "previous_response_id is not supported.")
        if request.method == "POST":
            return None
        if first in ECHOED:
            return echo(request)
        shown, is_there = self.models, path.endswith("models")
        if request.path == "/props" and self.props is not None:
            shown, is_there = self.props, True
        if request.path in self.documents:
            shown, is_there = self.documents[request.path](), True
        return Answer([json.dumps(shown).encode()], 200 if is_there else 404)

    def is_lookup(self, request: Received) -> bool:
        """Whether a request looks at models or for what a server may have; those are not recorded."""
        first = tail(request).partition("/")[0]
        return request.method in ("GET", "HEAD") and first not in {*ECHOED, "responses"}

    def keep(self, request: Received, answer: Answer) -> None:
        """Remember a response, unless it is not to be stored or is compressed."""
        if request.dialect != "responses" or self.kept is None or answer.status != 200:
            return
        if request.json.get("store") is False or any(name == b"content-encoding" for name, _ in answer.headers):
            return
        pieces = b"".join(piece for piece in answer.pieces if isinstance(piece, bytes))
        if request.streams:
            events = [json.loads(line[6:]) for line in pieces.splitlines() if line.startswith(b"data: {")]
            told = next((data["response"] for data in events if data.get("type") == "response.completed"), None)
        else:
            told = json.loads(pieces)
        if told:
            self.kept[told["id"]] = {**told, "input_items": request.messages}

    def _stored(self, method: str, response_id: str, rest: str) -> Answer:
        """What the upstream keeps of a response."""
        if method == "DELETE" and self.refuses_deletions:
            return error(503, "not now")
        found = (self.kept or {}).get(response_id)
        if found is None:
            return error(404, f"Response with id '{response_id}' not found.")
        if method == "DELETE" and self.kept is not None:
            del self.kept[response_id]
            deleted = {"id": response_id, "object": "response", "deleted": True}
            return Answer([json.dumps(deleted).encode()])
        if rest == "input_items":
            items = [{"id": f"item_{n}", "type": "message", **item} for n, item in enumerate(found["input_items"])]
            ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"], "has_more": False}
            return Answer([json.dumps({"object": "list", "data": items, **ends}).encode()])
        if rest == "cancel":
            return error(400, "Only background responses can be cancelled.")
        return Answer([json.dumps({name: value for name, value in found.items() if name != "input_items"}).encode()])


_COUNTS = {"messages/count_tokens": messages_answers.counted, "responses/input_tokens": responses_answers.counted}
