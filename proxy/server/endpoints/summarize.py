"""``POST /tidemark/conversations/{id}/summarize``: a stored conversation is compacted by hand.

Reached with the tenant's own credential, or with the admin token, which reaches all (docs/history.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proxy.archive.summarize import Done, ManualCompaction, SummarizeRequest
from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import InvalidRequest
from proxy.dialects.chat.request import checked_model
from proxy.dialects.raw_json import decoded, members
from proxy.server.access import ConversationAccess
from proxy.server.asgi import read_body
from proxy.server.encodings import decoded_body
from proxy.server.endpoints.ops import told
from proxy.server.headers import report_lines

MAX_BODY_BYTES = 65_536
MEMBERS = ("retention_tokens", "regenerate", "model")
"""What the body may hold; a slip in a name must not go unnoticed."""
NOTHING_TO_SUMMARIZE = "nothing_to_summarize"
"""``outcome`` of an answer where no summary was made: all that is left has to stay (FR-2.2.1)."""


@dataclass(frozen=True, slots=True)
class SummarizeEndpoint:
    """The endpoints of stored conversations."""

    manual: ManualCompaction
    access: ConversationAccess

    def routes(self) -> list[BaseRoute]:
        """One path for each thing to do."""
        return [Route("/tidemark/conversations/{id}/summarize", told(self._summarize), methods=["POST"])]

    async def _summarize(self, request: Request) -> Response:
        caller = self.access.caller(request)
        body = await read_body(request.receive, request.headers.raw, MAX_BODY_BYTES)
        body = await decoded_body(body, request.headers.raw, MAX_BODY_BYTES)
        wish = _wish(request.path_params["id"], members(body) if body.strip() else {})
        done = await self.manual.summarize(wish, caller)
        response = Response(_told(done), media_type="application/json")
        response.raw_headers.extend(report_lines(done.report))
        return response


def _wish(conversation: str, fields: Mapping[str, bytes]) -> SummarizeRequest:
    unknown = next((name for name in fields if name not in MEMBERS), None)
    if unknown is not None:
        raise InvalidRequest(
            f"Unknown parameter: {unknown[:80]!r}; use {', '.join(MEMBERS)}.",
            param=unknown[:80],
            code="unknown_parameter",
        )
    said = {name: decoded(raw, name) for name, raw in fields.items()}
    retention, regenerate, model = (said.get(name) for name in MEMBERS)
    if retention is not None and (isinstance(retention, bool) or not isinstance(retention, int) or retention < 0):
        raise _mistyped("retention_tokens", "a whole number of tokens, 0 or more")
    if regenerate is not None and not isinstance(regenerate, bool):
        raise _mistyped("regenerate", "true or false")
    return SummarizeRequest(conversation, retention, bool(regenerate), None if model is None else checked_model(model))


def _mistyped(name: str, wanted: str) -> InvalidRequest:
    return InvalidRequest(f"'{name}' must be {wanted}.", param=name, code="invalid_type")


def _told(done: Done) -> bytes:
    report, summary = done.report, done.summary
    facts: dict[str, JsonValue] = {
        "conversation": report.conversation,
        "summary": summary.text if summary else "",
        "strategy": report.strategy,
        "summarized_messages": report.summarized,
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
    }
    if report.action != "forced":
        facts["outcome"] = NOTHING_TO_SUMMARIZE
    if report.warning:
        facts["warning"] = report.warning
    return json.dumps(facts, ensure_ascii=False).encode()
