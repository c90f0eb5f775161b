"""Lists every setting with the value that is in force and where that value comes from, without any secret.

``loading.py`` notes the sources, and the console's page of settings shows the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark.config.kinds import yaml_word
from tidemark.config.masking import STARS, Address
from tidemark.config.sections import key_notes
from tidemark.config.settings import Settings
from tidemark.config.tree import Node, Table
from tidemark.core.conversation.summary import Template
from tidemark.core.frozen import frozen

_VARIABLES = {
    "TIDEMARK_STORE_URL": "store.url",
    "TIDEMARK_UPSTREAM": "upstream",
    "TIDEMARK_KEYS_URL": "encryption.keys_url",
    "TIDEMARK_DATA_DIR": "data_dir",
}
_SECRETS = {
    "TIDEMARK_ADMIN_TOKEN": "admin_token",
    "TIDEMARK_AUDITOR_TOKEN": "auditor_token",
    "TIDEMARK_OPENID_SECRET": "openid",
    "TIDEMARK_SECRET": "signing",
    "TIDEMARK_FLUSH_SECRET": "flush",
    "TIDEMARK_ENCRYPTION_KEY": "encryption",
    "TIDEMARK_ENCRYPTION_KEY_FILE": "encryption_file",
}


@frozen
class EffectiveSetting:
    """A setting in force."""

    name: str
    """Its dotted key, or the variable of a secret."""
    value: str
    """Without secrets."""
    source: str
    """Where the value comes from."""


def sources_of(root: Table, path: Path | None, environ: Mapping[str, str], preset: Mapping[str, Any]) -> dict[str, str]:
    """Return where each key's value comes from, by dotted key; a key without a source has its default.

    :param preset: the preset's values for ``compaction.defaults``
    """
    sources = {f"compaction.defaults.{name}": "preset" for name in preset}
    for note in key_notes():
        if (line := _line(root, note.name)) is not None:
            sources[note.name] = f"{path}:{line}"
    return sources | {key: f"environment: {name}" for name, key in _VARIABLES.items() if environ.get(name)}


def effective_settings(settings: Settings) -> list[EffectiveSetting]:
    """Return every key, then the secrets of the environment, whose values are never shown."""
    rows = [
        EffectiveSetting(note.name, _shown(_value(settings, note.name)), settings.sources.get(note.name, "default"))
        for note in key_notes()
    ]
    for variable, name in _SECRETS.items():
        if getattr(settings.secrets, name) is not None:
            rows.append(EffectiveSetting(variable, STARS, "environment"))
    return rows


def _line(root: Table, name: str) -> int | None:
    """Return the line of a key in the file; None if the file does not state it."""
    node: Node | None = root
    line = None
    for part in name.split("."):
        if not isinstance(node, Table) or part not in node.nodes:
            return None
        line, node = node.key_lines[part], node.nodes[part]
    return line


def _value(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _shown(value: Any) -> str:
    if isinstance(value, Address):
        return value.shown
    if isinstance(value, Template):
        return value.name
    return yaml_word(value)
