"""``POST /tidemark/count`` and ``POST /tidemark/compact``: one body is counted or compacted, and nothing is stored.

It stands beside the pipeline. The command line prints the same JSON (``tidemark/cli/main.py``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from tidemark.compaction.compactor import Compactor
from tidemark.compaction.offline import Compacted, OfflineOptions, compact_once
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.conversation.summary import Strategy
from tidemark.core.errors import InvalidRequest, SummaryRejected, UpstreamError
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import ModelProfile
from tidemark.core.ports import Caller, ModelCatalog, Route, TokenCounter, Upstream
from tidemark.dialects.json_bounds import LIGHT_BYTES
from tidemark.dialects.members import check_names, missing, wrong_type
from tidemark.dialects.raw_json import decode_value, read_members

STRATEGIES: dict[str, Strategy] = {name: name for name in get_args(Strategy)}
MIN_BUDGET_TOKENS = 16
NOTHING_CHOSEN: Mapping[str, Any] = {}
REJECTED_REMEDY = (
    "Send the request again, or use another summarizer model or template, or the strategy extractive, which asks no "
    "model."
)
COMPACT_MEMBERS = ("request", "max_tokens", "strategy")
"""The members that the body of ``POST /tidemark/compact`` may have; any other name is an error."""


@frozen
class OfflineService:
    """Counts and compacts single requests; it has no state."""

    dialect: Dialect
    counter: TokenCounter
    catalog: ModelCatalog
    upstream: Upstream
    compactor: Compactor
    name_summarizer: Callable[[ModelProfile, Route], str]
    """Returns the model and the template of a policy's summarizer, for errors."""
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
        check_names(fields, COMPACT_MEMBERS)
        if "request" not in fields:
            raise missing("request")
        request = await self.dialect.parse(fields["request"], anonymous=True)
        return await self.compact_request(request, _max_tokens(fields), _strategy(fields), caller)

    async def compact_request(
        self,
        request: ModelRequest,
        max_tokens: int | None,
        strategy: str,
        caller: Caller,
        chosen: Mapping[str, Any] = NOTHING_CHOSEN,
    ) -> bytes:
        """Return the same for a request that is parsed already.

        :param chosen: members of the model's policy that take the place of the configured ones
        :raises SummaryRejected, UpstreamError: the summarizer gave no usable summary; the message names it
        """
        if strategy not in STRATEGIES:
            raise InvalidRequest(
                f"Unknown strategy {strategy!r}; use one of {', '.join(STRATEGIES)}.", param="strategy"
            )
        if max_tokens is not None and max_tokens < MIN_BUDGET_TOKENS:
            raise InvalidRequest(
                f"'max_tokens' must be {MIN_BUDGET_TOKENS} or more, not {max_tokens}.", param="max_tokens"
            )
        route, profile = await self.situation(request.model, STRATEGIES[strategy], caller, chosen)
        options = OfflineOptions(STRATEGIES[strategy], max_tokens, route, caller)
        try:
            return _json_of(await compact_once(request, profile, options, self.counter, self.compactor))
        except (SummaryRejected, UpstreamError) as error:
            raise self.explained(error, route, profile) from error

    def explained(
        self, error: SummaryRejected | UpstreamError, route: Route, profile: ModelProfile
    ) -> SummaryRejected | UpstreamError:
        """Return the same error with the summarizer's name, and with what to do about an answer that is no summary."""
        if profile.policy.strategy == "extractive":
            return error
        message = f"The summarizer ({self.name_summarizer(profile, route)}) gave no usable summary: {error}"
        if isinstance(error, SummaryRejected):
            message = f"{message.rstrip('.')}. {REJECTED_REMEDY}"
        return type(error)(message, internal=error.internal)

    async def situation(
        self, model: str, strategy: Strategy, caller: Caller, chosen: Mapping[str, Any] = NOTHING_CHOSEN
    ) -> tuple[Route, ModelProfile]:
        """Return a model's route and its profile with a strategy; ``extractive`` asks no model, so it has no route.

        :param chosen: members of the model's policy that take the place of the configured ones
        """
        nowhere = Route("wire", model, model, provider="", base_url="")
        if strategy != "extractive":
            caller.check_model(model)
        route = nowhere if strategy == "extractive" else await self.upstream.resolve(model)
        profile = await self.catalog.profile(route, caller)
        return route, replace(profile, policy=replace(profile.policy, strategy=strategy, **chosen))


def _max_tokens(fields: Mapping[str, bytes]) -> int | None:
    value = decode_value(fields["max_tokens"], "max_tokens") if "max_tokens" in fields else None
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise wrong_type("max_tokens", "a whole number")
    return value


def _strategy(fields: Mapping[str, bytes]) -> str:
    value = decode_value(fields["strategy"], "strategy") if "strategy" in fields else "extractive"
    if not isinstance(value, str):
        raise wrong_type("strategy", "a string")
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
