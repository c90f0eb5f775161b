"""The composition root: the only package that imports every adapter. It connects them and has no rules."""

from __future__ import annotations

from tidemark.app.application import create_app
from tidemark.app.dialects import build_codec, build_dialects
from tidemark.app.parts import Parts
from tidemark.app.stored_parts import StoredParts
from tidemark.features.memory_flush.flushing import Flushing

__all__ = ["Flushing", "Parts", "StoredParts", "build_codec", "build_dialects", "create_app"]
