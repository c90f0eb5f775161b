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
    steps, store = tracing.steps, worker.store
    steps.trace_step(worker.identifier.identify, "identity")
    steps.trace_step(worker.fitter.fit, "plan")
    steps.trace_summaries(worker.immediate, worker.compactor)
    steps.trace_store(
        store.all_turns,
        store.branches,
        store.conversation,
        store.find_by_name,
        store.forget,
        store.keep_summary,
        store.latest_turn,
        store.message_ids,
        store.messages,
        store.originals,
        store.recall,
        store.record,
        store.summaries,
        store.summary,
        store.summary_versions,
        store.system_messages,
    )
    responses, heads, answers, calibrations = store.responses, worker.request_heads, worker.answers, worker.calibrations
    steps.trace_store(store.turns.start_turn, part="turns.")
    steps.trace_store(responses.find, responses.forget, responses.keep, part="responses.")
    steps.trace_store(heads.summarized_count, heads.with_missing, part="request_heads.")
    steps.trace_store(answers.find, answers.keep, part="answers.")
    steps.trace_store(calibrations.calibration, calibrations.learn, part="calibrations.")
    tracing.trace_upstream(worker.upstream)
