"""The step ``fit``: brings a request within its token budget. ``fit.py`` has how."""

from __future__ import annotations

from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.values import Refused, Result
from tidemark.pipeline.walk import Walk


class Fit:
    """Fits requests."""

    def __init__(self, fitter: BudgetFitter) -> None:
        self._fitter = fitter

    async def __call__(self, walk: Walk) -> Walk | Result:
        """Fit a request, or refuse it."""
        fitted = await self._fitter.fit(walk.context, walk.progress)
        if isinstance(fitted, Refused):
            return fitted
        walk.fitted = fitted
        return walk
