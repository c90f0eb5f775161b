"""Traces: OpenTelemetry spans of requests and of what is done for them (the extra ``otel``).

``tidemark/app`` puts them around the parts, so that no other package knows of them. Without a configured collector
nothing here is imported beyond this file and ``starting.py``.
"""

from __future__ import annotations

from .starting import start_tracing

__all__ = ["start_tracing"]
