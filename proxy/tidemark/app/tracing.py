"""Puts spans around the parts of one worker process, if traces are recorded.

``application.py`` calls it once the parts are built. Everything else of traces is in ``tidemark/tracing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.worker.worker import Worker

if TYPE_CHECKING:
    from tidemark.tracing.tracing import Tracing


def trace_parts(tracing: Tracing, worker: Worker) -> None:
    """Let the steps of requests have spans, and what they ask of the store and of upstreams."""
    steps = tracing.steps
    steps.trace_step(worker.identifier, "identify", "identity")
    steps.trace_step(worker.fitter, "fit", "plan")
    steps.trace_summaries(worker.immediate, worker.compactor)
    steps.trace_store(worker.store, "store")
    steps.trace_store(worker.store.turns, "turns")
    steps.trace_store(worker.store.responses, "responses")
    steps.trace_store(worker.request_heads, "request_heads")
    steps.trace_store(worker.answers, "answers")
    steps.trace_store(worker.calibrations, "calibrations")
    tracing.trace_upstream(worker.upstream)
