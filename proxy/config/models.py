"""Models: the entries of ``model_list`` (LiteLLM's syntax), and what ``config/models.yaml`` knows by name.

``reading.py`` reads the values; here they become entries, windows and the best match for a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from proxy.config import kinds
from proxy.config.masking import Parameters
from proxy.config.reading import MISSING, Reader
from proxy.config.sections import CompactionSettings, Given
from proxy.config.tree import Node, Scalar, Table
from proxy.core.conversation.messages import JsonValue
from proxy.core.planning.budget import DEFAULT_WINDOW_TOKENS, ModelWindow, WindowSource

T = TypeVar("T")
LaneChoice = Literal["auto", "wire", "translate"]
"""``auto``: bytes for upstreams that speak OpenAI's wire format, litellm's translation for all others."""

ENTRY_KEYS = ("model_name", "litellm_params", "model_info", "compaction", "lane")
"""The keys of an entry of ``model_list``; the first three are LiteLLM's."""
WINDOW_KEYS = ("max_input_tokens", "max_output_tokens", "context_window")
"""The first two are LiteLLM's words, the third says what input and output share."""
_TOKENS = kinds.or_word("null", kinds.whole("tokens", least=1))
_LANES = kinds.choice(LaneChoice)


@dataclass(frozen=True, slots=True)
class WindowNote:
    """What one source states of a model's window, in tokens; None where it says nothing."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    context_window: int | None = None

    @property
    def states_window(self) -> bool:
        """Whether it says how much goes in; a reply's length alone does not."""
        return self.max_input_tokens is not None or self.context_window is not None

    def over(self, other: WindowNote) -> WindowNote:
        """This note, completed by another. A window is taken whole from one: two halves fit nothing."""
        if not self.states_window:
            return WindowNote(
                other.max_input_tokens,
                self.max_output_tokens or other.max_output_tokens,
                other.context_window,
            )
        return WindowNote(self.max_input_tokens, self.max_output_tokens or other.max_output_tokens, self.context_window)

    def window(self, source: WindowSource) -> ModelWindow:
        """The same in the core's words; where only the whole is known, all of it may be input."""
        most = self.max_input_tokens or self.context_window or DEFAULT_WINDOW_TOKENS
        return ModelWindow(most, self.max_output_tokens, self.context_window, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """An entry of ``model_list``."""

    name: str
    """The name the client uses; ``*`` in it stands for anything, as in LiteLLM."""
    litellm_params: Mapping[str, JsonValue]
    """As they go to litellm, credentials included; ``repr`` shows the model only."""
    model_info: Mapping[str, JsonValue] = field(default_factory=dict)
    window: WindowNote = WindowNote()
    """What ``model_info`` says of the window."""
    compaction: Given = field(default_factory=dict)
    """The compaction keys of this entry."""
    lane: LaneChoice = "auto"
    line: int = field(default=0, compare=False)

    @property
    def upstream_model(self) -> str:
        """``litellm_params.model``."""
        return str(self.litellm_params["model"])

    @property
    def known_as(self) -> str:
        """The name to look the model up by; ``base_model`` tells it behind a deployment's name."""
        return str(self.model_info.get("base_model") or self.upstream_model)


@dataclass(frozen=True, slots=True)
class ModelDefault:
    """What is known of the models whose name matches a pattern."""

    window: WindowNote
    compaction: Given


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """The shipped knowledge of models, by glob."""

    patterns: Mapping[str, ModelDefault] = field(default_factory=dict)

    def find(self, model: str) -> ModelDefault | None:
        """The most specific pattern's, for the whole name or for it without its provider (``azure/``)."""
        name = model.lower()
        for candidate in (name, name.rpartition("/")[2]):
            found = most_specific(self.patterns, candidate)
            if found is not None:
                return found
        return None


def most_specific(by_pattern: Mapping[str, T], name: str) -> T | None:
    """What stands under the pattern that fits ``name`` best: the name itself, else the longest glob."""
    if name in by_pattern:
        return by_pattern[name]
    fitting = (pattern for pattern in by_pattern if fnmatchcase(name, pattern))
    best = max(fitting, key=lambda pattern: (len(pattern), pattern), default=None)
    return None if best is None else by_pattern[best]


def read_model_list(reader: Reader, node: Node | None) -> tuple[ModelEntry, ...]:
    """The usable entries of ``model_list``; the reader notes what is wrong with the others."""
    items = enumerate(reader.items(node, "model_list"), 1)
    entries = [entry for number, item in items if (entry := _read_entry(reader, item, number)) is not None]
    _warn_of_twins(reader, entries)
    return tuple(entries)


def read_model_defaults(reader: Reader, root: Table) -> ModelDefaults:
    """The patterns of ``config/models.yaml``."""
    models = reader.free_table(reader.table(root, "", ("models",)).nodes.get("models"), "models")
    patterns = {}
    for pattern, node in models.nodes.items():
        table = reader.table(node, pattern, (*WINDOW_KEYS, "compaction"))
        given = reader.section(CompactionSettings(), table.nodes.get("compaction"), pattern, "compaction")
        patterns[pattern] = ModelDefault(_read_window(reader, table, pattern), given)
    return ModelDefaults(patterns)


def _read_entry(reader: Reader, node: Node, number: int) -> ModelEntry | None:
    label = f"model_list[{number}]"
    if not isinstance(node, Table):
        reader.problem(node.line, f"{label} must hold model_name and litellm_params")
        return None
    nodes = reader.table(node, label, ENTRY_KEYS).nodes
    name = _required(reader, nodes, "model_name", label, node.line)
    params = reader.free_table(nodes.get("litellm_params"), f"{label}.litellm_params")
    has_model = False
    if "litellm_params" not in nodes:
        reader.problem(node.line, f"{label} has no litellm_params; add litellm_params: {{model: PROVIDER/MODEL}}")
    else:
        line = nodes["litellm_params"].line
        has_model = _required(reader, params.nodes, "model", f"{label}.litellm_params", line) is not None
    info = reader.free_table(nodes.get("model_info"), f"{label}.model_info")
    lane: Any = reader.value(nodes["lane"], f"{label}.lane", _LANES) if "lane" in nodes else "auto"
    compaction = reader.section(CompactionSettings(), nodes.get("compaction"), f"{label}.compaction", "compaction")
    window = _read_window(reader, info, f"{label}.model_info")
    plain_params, plain_info = (
        {one: reader.plain(value) for one, value in table.nodes.items()} for table in (params, info)
    )
    if name is None or not has_model or lane is MISSING:
        return None
    return ModelEntry(
        name=name,
        litellm_params=Parameters(plain_params),
        model_info=plain_info,
        window=window,
        compaction=compaction,
        lane=lane,
        line=node.line,
    )


def _required(reader: Reader, nodes: Mapping[str, Node], name: str, label: str, line: int) -> str | None:
    if name not in nodes:
        reader.problem(line, f"{label} has no {name}; add it")
        return None
    value = reader.value(nodes[name], f"{label}.{name}", kinds.text())
    return None if value is MISSING else str(value)


def _read_window(reader: Reader, table: Table, label: str) -> WindowNote:
    values: dict[str, int | None] = {}
    for one in WINDOW_KEYS:
        if one in table.nodes:
            value = reader.value(table.nodes[one], f"{label}.{one}", _TOKENS)
            values[one] = None if value is MISSING else value
    note = WindowNote(**values)
    if note.context_window and note.max_input_tokens and note.context_window < note.max_input_tokens:
        reader.problem(
            table.nodes["context_window"].line,
            f"{label}.context_window is {note.context_window}, less than max_input_tokens; "
            "it holds input and output together",
        )
    old = table.nodes.get("max_tokens")  # LiteLLM's older word, which means the one or the other
    if isinstance(old, Scalar) and not note.states_window:
        reader.warn(old.line, f"{label}.max_tokens does not tell the window; state max_input_tokens")
    return note


def _warn_of_twins(reader: Reader, entries: Iterable[ModelEntry]) -> None:
    first: dict[str, int] = {}
    for entry in entries:
        if entry.name in first:
            reader.warn(
                entry.line,
                f'model_name "{entry.name}" stands on line {first[entry.name]} already; that entry is used, '
                "since balancing between several is not available yet",
            )
        first.setdefault(entry.name, entry.line)
