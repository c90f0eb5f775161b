"""Settings for all models that the operator changes while Tidemark runs (FR-3.1.1 to FR-3.1.3).

The store keeps them, and they replace the values of the file, the environment and the command line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

SettingValues = Mapping[str, str | int | float | bool]
"""The settings that the store has, by name; a name that is missing is not set."""


def version_of(values: SettingValues) -> str:
    """Return a text that differs if the settings differ, for people who edit them at once."""
    return "v" + hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode()).hexdigest()[:16]
