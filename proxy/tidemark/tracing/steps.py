"""Puts spans around the steps of a request: identity, plan, summary and the store.

``tracing.py`` calls it when the parts are built. A span takes the place of a method of one instance, so that the
classes have no trace of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from opentelemetry.trace import Span, SpanKind

from tidemark.compaction.compactor import Compactor
from tidemark.compaction.immediate import ImmediateCompaction
from tidemark.compaction.values import CompactionOrder, NotSummarized, Trigger
from tidemark.tracing.conventions import CONVERSATION, Attributes
from tidemark.tracing.spans import Spans

STORE_CALLS: dict[str, tuple[str, ...]] = {
    "store": (
        "all_turns",
        "branches",
        "conversation",
        "find_by_name",
        "forget",
        "keep_summary",
        "latest_turn",
        "message_ids",
        "messages",
        "originals",
        "recall",
        "record",
        "summaries",
        "summary",
        "summary_versions",
        "system_messages",
    ),
    "turns": ("start_turn",),
    "responses": ("find", "forget", "keep"),
    "request_heads": ("summarized_count", "with_missing"),
    "answers": ("find", "keep"),
    "calibrations": ("calibration", "learn"),
}
"""The calls to the store that have spans, by the part that makes them."""
_Call = Callable[..., Awaitable[Any]]


class _Compaction(Protocol):
    """A run of ``compaction/compactor.py``."""

    @property
    def order(self) -> CompactionOrder: ...

    @property
    def trigger(self) -> Trigger: ...


class StepTracing:
    """Puts spans around the methods of instances."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def trace_step(self, part: object, method: str, name: str) -> None:
        """Let each call of a method be a child span."""
        call: _Call = getattr(part, method)

        async def traced(*arguments: Any, **options: Any) -> Any:
            with self._spans.child(name):
                return await call(*arguments, **options)

        _put(part, method, traced)

    def trace_store(self, part: object, kind: str) -> None:
        """Let each call to the store that a part makes be a child span.

        :param kind: a key of ``STORE_CALLS``
        """
        for method in STORE_CALLS[kind]:
            self._trace_store_call(part, method, method if kind == "store" else f"{kind}.{method}")

    def _trace_store_call(self, part: object, method: str, operation: str) -> None:
        call: _Call = getattr(part, method)
        attributes = {"db.system.name": "redis", "db.operation.name": operation}

        async def traced(*arguments: Any, **options: Any) -> Any:
            with self._spans.child(f"store {operation}", SpanKind.CLIENT, attributes):
                return await call(*arguments, **options)

        _put(part, method, traced)

    def trace_summaries(self, immediate: ImmediateCompaction, compactor: Compactor) -> None:
        """Let each summary that a request waits for be a child span, and each prepared one the root of a trace."""
        compact: _Call = immediate.compact
        make: _Call = compactor.make

        async def compact_in_span(order: CompactionOrder, **options: Any) -> Any:
            with self._spans.child("summary", attributes=_order_attributes(order)) as span:
                return _noted(span, await compact(order, **options))

        async def make_in_span(run: _Compaction, **options: Any) -> Any:
            if run.trigger is Trigger.REQUEST:
                return await make(run, **options)
            attributes = _order_attributes(run.order)
            if run.trigger is Trigger.PREPARATION:
                with self._spans.linked_root("preparation", attributes) as span:
                    return _noted(span, await make(run, **options))
            with self._spans.child("summary", attributes=attributes) as span:
                return _noted(span, await make(run, **options))

        _put(immediate, "compact", compact_in_span)
        _put(compactor, "make", make_in_span)


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


def _put(part: object, method: str, traced: _Call) -> None:
    """Put a function in the place of an instance's method."""
    setattr(part, method, traced)
