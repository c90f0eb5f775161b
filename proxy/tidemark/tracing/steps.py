"""Puts spans around the steps of a request: identity, plan, summary and the store.

``app/tracing.py`` names the methods when the parts are built. A span takes the place of a method of one instance, so
that the classes have no trace of it, and requests do no more where no traces are recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry.trace import Span, SpanKind

from tidemark.compaction.compactor import CompactionRun, Compactor
from tidemark.compaction.immediate import ImmediateCompaction
from tidemark.compaction.order import CompactionOrder, NotSummarized, Trigger
from tidemark.tracing.conventions import CONVERSATION, Attributes
from tidemark.tracing.spans import Spans

_Method = Callable[..., Awaitable[Any]]
"""A method of an instance, or what takes its place."""


class StepTracing:
    """Puts spans around the methods of instances."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def trace_step(
        self, call: _Method, name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes | None = None
    ) -> None:
        """Let each call of a method be a child span."""

        async def traced(*arguments: Any, **options: Any) -> Any:
            with self._spans.child(name, kind, attributes):
                return await call(*arguments, **options)

        put(call, traced)

    def trace_store(self, *calls: _Method, part: str = "") -> None:
        """Let each of these calls to the store be a child span.

        :param part: goes before their names
        """
        for call in calls:
            operation = part + call.__name__
            attributes = {"db.system.name": "redis", "db.operation.name": operation}
            self.trace_step(call, f"store {operation}", SpanKind.CLIENT, attributes)

    def trace_summaries(self, immediate: ImmediateCompaction, compactor: Compactor) -> None:
        """Let each summary that a request waits for be a child span, and each prepared one the root of a trace."""
        compact, make = immediate.compact, compactor.make

        async def compact_in_span(order: CompactionOrder, **options: Any) -> Any:
            with self._spans.child("summary", attributes=_order_attributes(order)) as span:
                return _noted(span, await compact(order, **options))

        async def make_in_span(run: CompactionRun, **options: Any) -> Any:
            if run.trigger is Trigger.REQUEST:
                return await make(run, **options)
            attributes = _order_attributes(run.order)
            if run.trigger is Trigger.PREPARATION:
                with self._spans.linked_root("preparation", attributes) as span:
                    return _noted(span, await make(run, **options))
            with self._spans.child("summary", attributes=attributes) as span:
                return _noted(span, await make(run, **options))

        put(compact, compact_in_span)
        put(make, make_in_span)


def _noted(span: Span, result: object) -> object:
    """Note on a span whether there is a summary, and return it."""
    span.set_attribute("tidemark.summary.made", not isinstance(result, NotSummarized) and result is not None)
    return result


def _order_attributes(order: CompactionOrder) -> Attributes:
    attributes: dict[str, str | int] = {
        "tidemark.summary.messages": order.plan.covered,
        "tidemark.strategy": order.profile.policy.strategy,
    }
    if order.conversation:
        attributes[CONVERSATION] = order.conversation
    return attributes


def put(method: _Method, traced: _Method) -> None:
    """Put a function in the place of a method of its instance."""
    setattr(method.__self__, method.__name__, traced)  # type: ignore[attr-defined] # mypy gives a method no instance
