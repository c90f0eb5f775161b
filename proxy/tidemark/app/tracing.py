"""Puts spans around the parts of one worker process, where traces are recorded.

``application.py`` calls it once the parts are built. Everything else of traces is in ``tidemark/tracing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.app.stored_parts import Engine, StoredParts

if TYPE_CHECKING:
    from tidemark.tracing.tracing import Tracing


def trace_parts(tracing: Tracing, stored: StoredParts, engine: Engine) -> None:
    """Let the steps of requests have spans, and what they ask of the store and of upstreams."""
    steps = tracing.steps
    steps.trace_step(engine.identifier, "identify", "identity")
    steps.trace_step(engine.fitter, "fit", "plan")
    steps.trace_summaries(engine.immediate, engine.compactor)
    steps.trace_store(stored.store, "store")
    steps.trace_store(stored.store.turns, "turns")
    steps.trace_store(stored.store.responses, "responses")
    steps.trace_store(stored.request_heads, "request_heads")
    steps.trace_store(stored.answers, "answers")
    steps.trace_store(stored.calibrations, "calibrations")
    tracing.trace_upstream(stored.parts.upstream)
