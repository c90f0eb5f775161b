"""Reads the section ``compaction``, and checks that its marks do not contradict each other.

``loading`` calls it. A mark may be set in three places, so the check combines them as a request does.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from tidemark.config.models import ModelEntry, most_specific
from tidemark.config.reading import Reader
from tidemark.config.sections import CompactionSettings, StatedKeys, changed
from tidemark.config.settings import CompactionByModel
from tidemark.config.tree import Node, Table
from tidemark.core.conversation.native import writes_summaries

_CLOUDS = ("bedrock/", "vertex_ai/")
"""Providers that Tidemark asks through litellm, in chat completions."""
_MARKS = ("target", "threshold", "retention_ratio")


def read_compaction(
    reader: Reader, section: Node | None, entries: Collection[ModelEntry], base: CompactionSettings
) -> CompactionByModel:
    """Read the section, and check it together with the entries of ``model_list``.

    :param base: the values of keys that the section lacks: the preset's over Tidemark's own
    """
    table = reader.table(section, "compaction", ("defaults", "models"))
    defaults_node = table.nodes.get("defaults")
    keys = reader.section(CompactionSettings, defaults_node, "compaction.defaults")
    defaults = changed(base, keys)
    _check_marks(reader, defaults, keys, "compaction.defaults", _line_of_marks(defaults_node))
    models: dict[str, StatedKeys] = {}
    globs = reader.free_table(table.nodes.get("models"), "compaction.models")
    for pattern, node in globs.nodes.items():
        label = f'compaction.models["{pattern}"]'
        models[pattern] = reader.section(CompactionSettings, node, label)
        _check_marks(reader, changed(defaults, models[pattern]), models[pattern], label, _line_of_marks(node))
        _warn_of_no_model(reader, pattern, entries, globs.key_lines[pattern])
    for entry in entries:
        settings = changed(changed(defaults, most_specific(models, entry.name) or {}), entry.compaction)
        _check_marks(reader, settings, entry.compaction, f'compaction of "{entry.name}"', entry.line)
        if settings.enabled and settings.strategy == "native" and not _may_write(entry):
            reader.warn(
                entry.line,
                f'"{entry.name}" has strategy native, and {entry.upstream_model} is not known to write summaries '
                "itself: hybrid writes them; set strategy: hybrid, or native_compaction: true in model_info if it does",
            )
    return CompactionByModel(defaults=defaults, models=models)


def _may_write(entry: ModelEntry) -> bool:
    """Return whether a model may write summaries itself, as far as its entry says (``strategy: native``)."""
    stated, model = entry.model_info.get("native_compaction"), entry.upstream_model
    if isinstance(stated, bool):
        return stated
    return "*" in model or (not model.startswith(_CLOUDS) and writes_summaries(model))


def _check_marks(reader: Reader, settings: CompactionSettings, keys: StatedKeys, label: str, line: int) -> None:
    """Note marks that contradict each other, where ``keys`` sets one of them."""
    if not any(name in keys for name in _MARKS):
        return
    if settings.threshold <= 1 and settings.target >= settings.threshold:
        reader.problem(
            line,
            f"{label}: target is {settings.target:g}, not below the threshold {settings.threshold:g}; "
            "a compaction must bring a request well below the mark at which it is due",
        )
    elif settings.retention_ratio >= settings.target:
        reader.warn(
            line,
            f"{label}: retention_ratio {settings.retention_ratio:g} is not below target {settings.target:g}; "
            "the retention leaves no space for a summary, so compactions will free few tokens",
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
            f'"{pattern}" matches no model_name of model_list ({", ".join(names[:5])}); it has no effect',
        )
