"""The composition root: the only room that knows every adapter. Wiring, no rules."""

from __future__ import annotations

from .application import create_app
from .flushing import Flushing
from .parts import Parts, StoredParts

__all__ = ["Flushing", "Parts", "StoredParts", "create_app"]
