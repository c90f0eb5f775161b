"""The facts of ``core/events.py`` as log lines and as metrics: two listeners, strangers to each other."""

from __future__ import annotations
