"""Builds the endpoint that carries what no other endpoint serves."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tidemark.app.stored_parts import BYTES_A_MEGABYTE, StoredParts
from tidemark.config.sections import ServerSettings
from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.events import Listener
from tidemark.core.ports import Authenticator
from tidemark.pipeline.carried_objects import CarriedObjects
from tidemark.pipeline.prompt_check import PromptCheck
from tidemark.server.endpoints.destinations import Destinations
from tidemark.server.endpoints.forwarding import ForwardingEndpoint
from tidemark.server.spools import SpoolBounds, Spools


def forwarding_endpoint(
    stored: StoredParts, auth: Authenticator, formats: Mapping[str, ErrorFormat], max_body_bytes: int, emit: Listener
) -> ForwardingEndpoint:
    """Return the endpoint; it has no state.

    :param formats: the error formats of dialects, by path
    :param max_body_bytes: of bodies that are read whole
    """
    parts, settings = stored.parts, stored.parts.settings
    destinations = Destinations(
        parts.upstream,
        PromptCheck(parts.catalog, parts.counter),
        reads_models=bool(settings.model_list) or not settings.upstream,
        spools=Spools(_spool_bounds(settings.server)),
    )
    return ForwardingEndpoint(
        destinations,
        objects=CarriedObjects(stored.accounts),
        upstream=parts.upstream,
        auth=auth,
        formats=formats,
        max_body_bytes=max_body_bytes,
        emit=emit,
        timer=time.perf_counter,
    )


def _spool_bounds(server: ServerSettings) -> SpoolBounds:
    return SpoolBounds(
        all_bytes=max(server.max_spools_mb, server.max_spool_mb) * BYTES_A_MEGABYTE,
        form_bytes=server.max_spool_mb * BYTES_A_MEGABYTE,
        file_first_bytes=server.max_file_first_mb * BYTES_A_MEGABYTE,
        seconds=server.form_seconds,
    )
