"""The composition root: the only package that imports every adapter. It connects them and has no rules."""

from __future__ import annotations

from proxy.app.application import create_app
from proxy.app.dialects import build_codec, build_dialects
from proxy.app.flushing import Flushing
from proxy.app.parts import Parts
from proxy.app.stored_parts import StoredParts

__all__ = ["Flushing", "Parts", "StoredParts", "build_codec", "build_dialects", "create_app"]
