"""Reads the configuration file and the environment into one frozen ``Settings``.

``load`` serves ``tidemark serve``, ``check_report`` serves ``tidemark check``, and ``load_model_defaults`` reads the
shipped data of models. ``app`` passes the settings on; no other package reads the file or the environment.
"""

from __future__ import annotations

from proxy.config.exposure import exposure_warnings
from proxy.config.keys import KeyNote, key_notes
from proxy.config.loading import load
from proxy.config.masking import Address, Parameters, Secret
from proxy.config.models import LaneChoice, ModelDefault, ModelDefaults, ModelEntry, WindowNote
from proxy.config.overrides import as_typed, read_override
from proxy.config.policies import CompactionSettings, SummarizerSettings
from proxy.config.report import check_json, check_report
from proxy.config.schema import configuration_schema
from proxy.config.sections import (
    AuthSettings,
    HistorySettings,
    LimitSettings,
    MemoryFlushSettings,
    ServerSettings,
    StoreSettings,
    TenantSettings,
    TokenizerSettings,
    TransportSettings,
)
from proxy.config.settings import CompactionByModel, Secrets, Settings
from proxy.config.shipped import load_model_defaults, shipped_file

__all__ = [
    "Address",
    "AuthSettings",
    "CompactionByModel",
    "CompactionSettings",
    "HistorySettings",
    "KeyNote",
    "LaneChoice",
    "LimitSettings",
    "MemoryFlushSettings",
    "ModelDefault",
    "ModelDefaults",
    "ModelEntry",
    "Parameters",
    "Secret",
    "Secrets",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "SummarizerSettings",
    "TenantSettings",
    "TokenizerSettings",
    "TransportSettings",
    "WindowNote",
    "as_typed",
    "check_json",
    "check_report",
    "configuration_schema",
    "exposure_warnings",
    "key_notes",
    "load",
    "load_model_defaults",
    "read_override",
    "shipped_file",
]
