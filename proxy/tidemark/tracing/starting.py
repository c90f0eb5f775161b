"""Decides whether this process records traces, by the standard variables of OpenTelemetry.

``app/application.py`` asks once, before any part is built. Source: the OpenTelemetry specification, "Environment
Variable Specification" and "OTLP Exporter Configuration".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.tracing.tracing import Tracing

DISABLED = "OTEL_SDK_DISABLED"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTER = "OTEL_TRACES_EXPORTER"
SERVED_PROTOCOL = "http/protobuf"
_LIBRARY = "opentelemetry"


def start_tracing(warn: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """Start to record and export traces; None if no collector is configured, or the extra is missing."""
    named = next((name for name in ENDPOINTS if environ.get(name, "").strip()), None)
    if named is None or environ.get(DISABLED, "").strip().lower() == "true":
        return None
    if environ.get(EXPORTER, "").strip().lower() == "none":
        return None
    try:
        from tidemark.tracing.tracing import Tracing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _LIBRARY:
            raise
        mend = "Install tidemark-proxy[otel], or unset it."
        warn(f"{named} is set, but no traces are recorded: the extra is missing. {mend}")
        return None
    protocol = next((value for name in PROTOCOLS if (value := environ.get(name, "").strip())), SERVED_PROTOCOL)
    if protocol != SERVED_PROTOCOL:
        warn(f"{PROTOCOLS[1]} is {protocol}, but Tidemark exports traces by {SERVED_PROTOCOL} (port 4318) only.")
    return Tracing()
