"""Examines this machine: the configuration's warnings, the data folder, and the vocabularies that count tokens."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tidemark.config import Settings, exposure_warnings
from tidemark.core.errors import TidemarkError
from tidemark.doctor.findings import Finding
from tidemark.worker.worker import Worker

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SAMPLE_TEXT = "Tidemark counts tokens exactly."
_DEFAULT_MODELS = ("gpt-4o", "gpt-4")
"""Models of the two vocabularies that most others are counted by."""


def check_configuration(settings: Settings) -> list[Finding]:
    """Return the warnings of a configuration that could be read."""
    warnings = [*settings.warnings, *exposure_warnings(settings)]
    if not warnings:
        return [
            Finding(
                "configuration",
                "ok",
                f"{settings.path} can be used" if settings.path else "there is no file; all values are defaults",
            )
        ]
    mend = "Change the named keys; docs/configuration.md explains each."
    return [Finding("configuration", "warning", warning, mend) for warning in warnings]


def check_data_folder(settings: Settings) -> list[Finding]:
    """Say whether the data folder can be written, by this user only."""
    folder = settings.data_dir
    mend = "Name another folder by TIDEMARK_DATA_DIR, or give this user the right to write there."
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
    except OSError as error:  # a parent may not be entered, or a name is too long
        return [Finding("data folder", "error", f"{folder} cannot be used: {error.strerror}", mend)]
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return [Finding("data folder", "error", f"{existing} cannot be written", mend)]
    if existing != folder:
        return [Finding("data folder", "ok", f"{folder} will be created")]
    exposed = [path.name for path in (folder, folder / "secret", folder / "store") if _is_open(path)]
    if exposed:
        mend = f"Run: chmod -R go-rwx {folder}"
        return [Finding("data folder", "warning", f"other users can reach {', '.join(exposed)} in {folder}", mend)]
    return [Finding("data folder", "ok", f"{folder} can be written, by this user only")]


def _is_open(path: Path) -> bool:
    return path.exists() and bool(path.stat().st_mode & _OTHERS)


def check_vocabularies(parts: Worker) -> list[Finding]:
    """Say whether the vocabularies that count the configured models are on this machine."""
    models = sorted({entry.upstream_model for entry in parts.settings.model_list} or set(_DEFAULT_MODELS))
    for model in models:
        try:
            parts.counter.count_text(_SAMPLE_TEXT, model)
        except TidemarkError as error:
            mend = "Install Tidemark again; its wheel brings every vocabulary, and nothing is downloaded."
            return [Finding("vocabularies", "error", str(error), mend)]
    return [Finding("vocabularies", "ok", "tokens are counted on this machine, without a network")]
