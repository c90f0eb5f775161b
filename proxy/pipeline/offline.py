"""``POST /tidemark/count`` and ``POST /tidemark/compact``: one body is counted or compacted, and nothing is stored.

It stands beside the pipeline. The command line prints the same JSON (``proxy/cli/main.py``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from proxy.compaction.compactor import Compactor
from proxy.compaction.offline import Compacted, OfflineOptions, compact_once
from proxy.core.conversation.request import Dialect, ModelRequest
from proxy.core.conversation.summary import Strategy
from proxy.core.errors import InvalidRequest
from proxy.core.ports import Caller, ModelCatalog, Route, TokenCounter, Upstream
from proxy.dialects.json_bounds import LIGHT_BYTES
from proxy.dialects.raw_json import decode_value, read_members

STRATEGIES: dict[str, Strategy] = {name: name for name in get_args(Strategy)}
MIN_BUDGET_TOKENS = 16
COMPACT_MEMBERS = ("request", "max_tokens", "strategy")
"""The members that the body of ``POST /tidemark/compact`` may have; any other name is an error."""


@dataclass(frozen=True, slots=True)
class OfflineService:
    """Counts and compacts single requests; it has no state."""

    dialect: Dialect
    counter: TokenCounter
    catalog: ModelCatalog
    upstream: Upstream
    compactor: Compactor
    timer: Callable[[], float]

    async def count(self, body: bytes) -> bytes:
        """Return ``{"input_tokens": N, "seconds": T, ...}`` for a request.

        :raises InvalidRequest, TokenizerFailed: there is nothing to count, or no way to
        """
        request = await self.dialect.parse(body, anonymous=True)
        started = self.timer()
        count = await self.counter.count(request, request.model)
        seconds = self.timer() - started
        facts = {
            "input_tokens": count.total,
            "seconds": round(seconds, 6),
            "model": request.model or None,
            "encoding": count.encoding,
            "exact": count.exact,
            "messages": len(request.messages),
            "message_tokens": list(count.messages),
            "other_tokens": count.other_tokens,
        }
        return json.dumps(facts).encode()

    async def compact(self, body: bytes, caller: Caller) -> bytes:
        """Return the compacted request and what was done, for ``{"request", "max_tokens", "strategy"}``."""
        fields = read_members(body) if len(body) <= LIGHT_BYTES else await asyncio.to_thread(read_members, body)
        unknown = next((name for name in fields if name not in COMPACT_MEMBERS), None)
        if unknown is not None:
            raise InvalidRequest(
                f"Unknown parameter: {unknown[:80]!r}; use {', '.join(COMPACT_MEMBERS)}.",
                param=unknown[:80],
                code="unknown_parameter",
            )
        if "request" not in fields:
            raise InvalidRequest(
                "Missing required parameter: 'request'.", param="request", code="missing_required_parameter"
            )
        request = await self.dialect.parse(fields["request"], anonymous=True)
        return await self.compact_request(request, _max_tokens(fields), _strategy(fields), caller)

    async def compact_request(
        self, request: ModelRequest, max_tokens: int | None, strategy: str, caller: Caller
    ) -> bytes:
        """Return the same for a request that is parsed already."""
        if strategy not in STRATEGIES:
            raise InvalidRequest(
                f"Unknown strategy {strategy!r}; use one of {', '.join(STRATEGIES)}.", param="strategy"
            )
        if max_tokens is not None and max_tokens < MIN_BUDGET_TOKENS:
            raise InvalidRequest(
                f"'max_tokens' must be {MIN_BUDGET_TOKENS} or more, not {max_tokens}.", param="max_tokens"
            )
        chosen = STRATEGIES[strategy]
        nowhere = Route("wire", request.model, request.model, provider="", base_url="")
        route = nowhere if chosen == "extractive" else await self.upstream.resolve(request.model)
        profile = await self.catalog.profile(route, caller)
        options = OfflineOptions(chosen, max_tokens, route, caller)
        return _json_of(await compact_once(request, profile, options, self.counter, self.compactor))


def _max_tokens(fields: Mapping[str, bytes]) -> int | None:
    value = decode_value(fields["max_tokens"], "max_tokens") if "max_tokens" in fields else None
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidRequest("'max_tokens' must be a whole number.", param="max_tokens", code="invalid_type")
    return value


def _strategy(fields: Mapping[str, bytes]) -> str:
    value = decode_value(fields["strategy"], "strategy") if "strategy" in fields else "extractive"
    if not isinstance(value, str):
        raise InvalidRequest("'strategy' must be a string.", param="strategy", code="invalid_type")
    return value


def _json_of(done: Compacted) -> bytes:
    """Write the answer; the request stands in it byte for byte."""
    facts = {
        "summary": done.summary,
        "tokens_before": done.tokens_before,
        "tokens_after": done.tokens_after,
        "summarized_messages": done.summarized_messages,
        "strategy": done.strategy,
    }
    return b'{"request":' + done.body.strip() + b"," + json.dumps(facts, ensure_ascii=False).encode()[1:]
