"""Listeners for the events of ``core/events.py``: a log and metrics, independent of each other."""

from __future__ import annotations
