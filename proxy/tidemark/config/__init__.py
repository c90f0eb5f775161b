"""Reads the configuration file and the environment into one frozen ``Settings``.

``load`` serves ``tidemark serve``, ``check_report`` serves ``tidemark check``, and ``load_model_defaults`` reads the
shipped data of models. ``app`` passes the settings on; no other package reads the file or the environment.
"""

from __future__ import annotations

from tidemark.config.access_sections import QuotaSettings
from tidemark.config.credentials import exposure_warnings
from tidemark.config.loading import load, load_model_defaults, shipped_file
from tidemark.config.masking import Address, Secret
from tidemark.config.models import ModelEntry, WindowNote
from tidemark.config.report import check_json, check_report
from tidemark.config.schema import configuration_schema
from tidemark.config.sections import (
    AuthSettings,
    CompactionSettings,
    EventSettings,
    MemoryFlushSettings,
    ServerSettings,
    StoreSettings,
    TenantSettings,
    TransportSettings,
    key_notes,
)
from tidemark.config.settings import Settings
from tidemark.config.stored import as_typed, read_override
