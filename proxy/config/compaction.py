"""The section ``compaction``: defaults and globs, and whether the marks that come out can hold together.

Part of loading. A mark may be set in three places, so they are checked as they are used: one over the other.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from proxy.config.models import ModelEntry, most_specific
from proxy.config.reading import Reader
from proxy.config.sections import CompactionSettings, Given, changed
from proxy.config.settings import CompactionByModel
from proxy.config.tree import Node, Table

_MARKS = ("target", "threshold", "retention_ratio")


def read_compaction(
    reader: Reader, node: Node | None, entries: Collection[ModelEntry], base: CompactionSettings
) -> CompactionByModel:
    """The section, checked together with what the entries of ``model_list`` say themselves.

    :param base: what holds where the section says nothing: the preset's values over Tidemark's own
    """
    table = reader.table(node, "compaction", ("defaults", "models"))
    stated = table.nodes.get("defaults")
    given = reader.section(CompactionSettings(), stated, "compaction.defaults", "compaction")
    defaults = changed(base, given)
    _check_marks(reader, defaults, given, "compaction.defaults", _line_of_marks(stated))
    models: dict[str, Given] = {}
    globs = reader.free_table(table.nodes.get("models"), "compaction.models")
    for pattern, one in globs.nodes.items():
        label = f'compaction.models["{pattern}"]'
        models[pattern] = reader.section(CompactionSettings(), one, label, "compaction")
        _check_marks(reader, changed(defaults, models[pattern]), models[pattern], label, _line_of_marks(one))
        _warn_of_no_model(reader, pattern, entries, globs.key_lines[pattern])
    for entry in entries:
        settings = changed(changed(defaults, most_specific(models, entry.name) or {}), entry.compaction)
        _check_marks(reader, settings, entry.compaction, f'compaction of "{entry.name}"', entry.line)
    return CompactionByModel(defaults=defaults, models=models)


def _check_marks(reader: Reader, settings: CompactionSettings, given: Given, label: str, line: int) -> None:
    """Note marks that contradict each other, where ``given`` has set one of them."""
    if not any(name in given for name in _MARKS):
        return
    if settings.threshold <= 1 and settings.target >= settings.threshold:
        reader.problem(
            line,
            f"{label}: target is {settings.target:g}, not below the threshold {settings.threshold:g}; "
            "a compaction must bring a request well under the mark that it is due at",
        )
    elif settings.retention_ratio >= settings.target:
        reader.warn(
            line,
            f"{label}: retention_ratio {settings.retention_ratio:g} is not below target {settings.target:g}; "
            "what is kept leaves no room for a summary, so compactions will bring little",
        )


def _line_of_marks(node: Node | None) -> int:
    if not isinstance(node, Table):
        return node.line if node else 0
    return next((node.key_lines[name] for name in _MARKS if name in node.key_lines), node.line)


def _warn_of_no_model(reader: Reader, pattern: str, entries: Collection[ModelEntry], line: int) -> None:
    names = [entry.name for entry in entries]
    if names and not any("*" in name or fnmatchcase(name, pattern) for name in names):
        reader.warn(
            line,
            f'"{pattern}" fits no model_name of model_list ({", ".join(names[:5])}); it is without effect',
        )
