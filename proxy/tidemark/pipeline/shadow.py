"""Shadow mode: requests travel as they came, and their reports say what a compaction would have made of them.

The step ``fit`` asks here after it left a request alone. Nothing is summarized, prepared or stored. The forecasts of
the newest conversations stay in memory; a worker that has none makes it from the newest requests.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidemark.core.bounded import BoundedCache
from tidemark.core.planning.forecast import MOST_REQUESTS, Forecast, forecast
from tidemark.core.planning.situation import EarlierMessagesNeeded
from tidemark.core.report import ShadowReport
from tidemark.offload.threads import offload_if_many
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.values import FittedRequest, RequestContext

MOST_FORECASTS = 2_000
"""The conversations whose forecasts are cached, about 1 KB each."""


class Shadow:
    """Makes forecasts. Its state is a cache of them, by conversation."""

    def __init__(self, fitter: BudgetFitter) -> None:
        self._fitter = fitter
        self._forecasts: BoundedCache[str, Forecast] = BoundedCache(MOST_FORECASTS)

    async def look(self, context: RequestContext, fitted: FittedRequest) -> FittedRequest:
        """Return the request with a forecast in its report, and unchanged apart from that."""
        plan_input = replace(self._fitter.plan_input(context), summary=None, prepared=None)
        earlier = self._forecasts.get(context.conversation)
        visits = len(plan_input.messages) * (1 if earlier else MOST_REQUESTS)
        try:
            latest = await offload_if_many(visits, partial(forecast, plan_input, earlier))
        except EarlierMessagesNeeded:  # of a stored history that is not read whole
            return fitted
        self._forecasts.put(context.conversation, latest)
        return replace(fitted, report=replace(fitted.report, shadow=_report(context, latest)))


def _report(context: RequestContext, latest: Forecast) -> ShadowReport:
    tokens = context.measure.provider_tokens
    if not latest.compacted or latest.summary is None:
        return ShadowReport(tokens(latest.tokens))
    if context.profile.policy.strategy == "extractive" or latest.summary.masked is not None:
        return ShadowReport(tokens(latest.tokens), tokens(latest.head_tokens))
    input_tokens, output_tokens = latest.replaced_tokens, latest.summary.tokens
    return ShadowReport(tokens(latest.tokens), tokens(latest.head_tokens), tokens(input_tokens), tokens(output_tokens))
