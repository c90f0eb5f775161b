"""Reads the entries of ``model_list`` (LiteLLM's syntax) and the shipped ``config/models.yaml``.

``loading`` calls it, and ``reader.py`` reads the single values. The settings use it to find the best match for a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from msgspec import Struct

from tidemark.config.kinds import Amount, Text, Tokens, kind_of, kinds_of
from tidemark.config.masking import Parameters
from tidemark.config.reader import MISSING, REFERENCE, Reader
from tidemark.config.sections import CompactionSettings, DialectName, StatedKeys
from tidemark.config.tree import Items, Node, Scalar, Table
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen
from tidemark.core.http_headers import CONTROLS
from tidemark.core.planning.budget import DEFAULT_WINDOW_TOKENS, ModelWindow, WindowSource

T = TypeVar("T")
LaneChoice = Literal["auto", "wire", "translate"]
"""``auto`` chooses the wire lane for upstreams with OpenAI's format, and the translate lane for all others."""

ENTRY_KEYS = ("model_name", "litellm_params", "model_info", "compaction", "lane")
"""The keys of an entry of ``model_list``; the first three are LiteLLM's."""
WINDOW_KEYS = ("max_input_tokens", "max_output_tokens", "context_window")
"""The first two are LiteLLM's keys; the third is the window that input and output share."""
BETA_KEY = "beta_windows"
"""The windows of a model for requests with one of Anthropic's beta headers, in tokens by the header's value."""
WITHOUT_EFFECT = frozenset(
    {
        "budget_duration",
        "cooldown_time",
        "litellm_credential_name",
        "max_budget",
        "max_parallel_requests",
        "max_retries",
        "num_retries",
        "order",
        "organization_id",
        "rpm",
        "tags",
        "tpm",
        "use_in_pass_through",
        "use_litellm_proxy",
        "weight",
    }
)
"""Keys of ``litellm_params`` for LiteLLM's router and proxy, which Tidemark does not use; clients decide on retries."""
HEADER_KEYS = ("api_key", "organization", "extra_headers", "headers")
"""The keys of ``litellm_params`` whose values become header lines."""
_KNOWN_BEGINNINGS = (
    *("gpt-", "chat", "codex-", "o1", "o3", "o4", "ft:", "text-", "whisper-", "tts-", "dall-e", "omni-moderation"),
    *("claude", "gemini-", "command", "embed-", "rerank-", "c4ai-", "jamba-", "j2-", "deep-research-", "computer-use-"),
)
"""Beginnings of models whose provider litellm finds without its name; so it does Bedrock's (``vendor.model``).
Source: the names of litellm 1.105.3 that it resolves."""
_OF_BEDROCK = re.compile(r"\.[a-z]")
_PARAMS = "litellm_params"


class ModelInfo(Struct, frozen=True, kw_only=True):
    """The model's window, where neither `models.yaml` nor litellm knows it, and LiteLLM's other keys."""

    max_input_tokens: Tokens | None
    """The longest input in tokens."""
    max_output_tokens: Tokens | None
    """The longest reply in tokens."""
    context_window: Tokens | None
    """The tokens that input and output share, where that number differs."""
    tokenizer: Text
    """What counts its tokens: an encoding (`o200k_base`), or the name of a model that is counted alike."""
    thinking_binding: bool
    """Whether the model checks what its signed thinking stands behind; without it, its name says so."""
    native_compaction: bool
    """Whether the upstream writes summaries itself, for `strategy: native`; without it, its name says so."""
    input_cost_per_token: Amount | None
    """What input costs, in USD for each token; without it and the next one, litellm's price."""
    output_cost_per_token: Amount | None
    """The same of output."""
    cache_read_input_token_cost: Amount | None
    """The same of input that the provider reads from its prompt cache."""
    cache_creation_input_token_cost: Amount | None
    """The same of input that it writes to its prompt cache."""
    cache_creation_input_token_cost_above_1hr: Amount | None
    """The same of input that it writes there for an hour; without it, twice the input's."""
    cache_seconds: Amount | None
    """How long a cached prefix lives after its last use; 0 if the provider caches nothing."""
    dialects: tuple[DialectName, ...]
    """The client formats that the upstream speaks itself."""


@frozen
class WindowNote:
    """A model's window in one source, in tokens; None for what the source does not state."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    context_window: int | None = None
    beta_windows: tuple[tuple[str, int], ...] = ()
    """The windows of requests with an ``anthropic-beta`` header of that value."""

    @property
    def states_window(self) -> bool:
        """Whether the note states the input's size; a reply's length alone does not."""
        return self.max_input_tokens is not None or self.context_window is not None

    def over(self, other: WindowNote) -> WindowNote:
        """Return this note, completed by another. A window comes from one note as a whole, never in parts."""
        if not self.states_window:
            return WindowNote(
                other.max_input_tokens,
                self.max_output_tokens or other.max_output_tokens,
                other.context_window,
                self.beta_windows or other.beta_windows,
            )
        return replace(self, max_output_tokens=self.max_output_tokens or other.max_output_tokens)

    def window(self, source: WindowSource) -> ModelWindow:
        """Return the core's value; if only the shared window is stated, all of it may be input."""
        most = self.max_input_tokens or self.context_window or DEFAULT_WINDOW_TOKENS
        return ModelWindow(most, self.max_output_tokens, self.context_window, source)


@frozen(kw_only=True)
class ModelEntry:
    """An entry of ``model_list``."""

    name: str
    """The name that clients use; ``*`` in it matches anything, as in LiteLLM."""
    litellm_params: Mapping[str, JsonValue]
    """The parameters for litellm, with credentials; ``repr`` shows the model only."""
    model_info: Mapping[str, JsonValue] = field(default_factory=dict)
    window: WindowNote = WindowNote()
    """The window in ``model_info``."""
    compaction: StatedKeys = field(default_factory=dict)
    """The compaction keys of this entry."""
    lane: LaneChoice = "auto"
    line: int = field(default=0, compare=False)

    @property
    def upstream_model(self) -> str:
        """``litellm_params.model``."""
        return str(self.litellm_params["model"])

    @property
    def counted_as(self) -> str | None:
        """What counts its tokens, where ``tokenizer`` or ``base_model`` of ``model_info`` states it."""
        stated = self.model_info.get("tokenizer") or self.model_info.get("base_model")
        return str(stated) if stated else None

    @property
    def lookup_name(self) -> str:
        """The name to look the model up by; ``base_model`` states it for a deployment's own name."""
        return str(self.model_info.get("base_model") or self.upstream_model)


@frozen
class ModelDefault:
    """The shipped data of the models whose name matches a pattern."""

    window: WindowNote
    compaction: StatedKeys


@frozen
class ModelDefaults:
    """The shipped data of models, by glob."""

    patterns: Mapping[str, ModelDefault] = field(default_factory=dict)

    def find(self, model: str) -> ModelDefault | None:
        """Return the data of the most specific pattern, for the name with or without its provider (``azure/``)."""
        name = model.lower()
        for candidate in (name, name.rpartition("/")[2]):
            match = most_specific(self.patterns, candidate)
            if match is not None:
                return match
        return None


def most_specific(by_pattern: Mapping[str, T], name: str) -> T | None:
    """Return the value of the pattern that matches ``name`` best: the name itself, else the longest glob."""
    if name in by_pattern:
        return by_pattern[name]
    fitting = (pattern for pattern in by_pattern if fnmatchcase(name, pattern))
    best = max(fitting, key=lambda pattern: (len(pattern), pattern), default=None)
    return None if best is None else by_pattern[best]


def read_model_list(reader: Reader, node: Node | None) -> tuple[ModelEntry, ...]:
    """Read the usable entries of ``model_list``; the reader notes the problems of the others."""
    items = enumerate(reader.items(node, "model_list"), 1)
    entries = [entry for number, item in items if (entry := _read_entry(reader, item, number)) is not None]
    _warn_of_duplicates(reader, entries)
    _warn_of_unused(reader, node)
    return tuple(entries)


def read_model_defaults(reader: Reader, root: Table) -> ModelDefaults:
    """Read the patterns of ``config/models.yaml``."""
    models = reader.free_table(reader.table(root, "", ("models",)).nodes.get("models"), "models")
    patterns = {}
    for pattern, node in models.nodes.items():
        table = reader.table(node, pattern, (*WINDOW_KEYS, BETA_KEY, "compaction"))
        keys = reader.section(CompactionSettings, table.nodes.get("compaction"), pattern)
        patterns[pattern] = ModelDefault(_read_window(reader, table, pattern), keys)
    return ModelDefaults(patterns)


def _read_entry(reader: Reader, node: Node, number: int) -> ModelEntry | None:
    label = f"model_list[{number}]"
    if not isinstance(node, Table):
        reader.problem(node.line, f"{label} must contain model_name and litellm_params")
        return None
    nodes = reader.table(node, label, ENTRY_KEYS).nodes
    model_name = _required(reader, nodes, "model_name", label, node.line)
    params = reader.free_table(nodes.get("litellm_params"), f"{label}.litellm_params")
    has_model = False
    if "litellm_params" not in nodes:
        reader.problem(node.line, f"{label} has no litellm_params; add litellm_params: {{model: PROVIDER/MODEL}}")
    else:
        line = nodes["litellm_params"].line
        has_model = _required(reader, params.nodes, "model", f"{label}.litellm_params", line) is not None
        _warn_without_provider(reader, params, f"{label}.litellm_params")
    info = reader.free_table(nodes.get("model_info"), f"{label}.model_info")
    lane: Any = reader.value(nodes["lane"], f"{label}.lane", kind_of(LaneChoice)) if "lane" in nodes else "auto"
    compaction = reader.section(CompactionSettings, nodes.get("compaction"), f"{label}.compaction")
    window = _read_window(reader, info, f"{label}.model_info")
    plain_params, plain_info = (
        {name: reader.plain(value) for name, value in table.nodes.items()} for table in (params, info)
    )
    _refuse_controls(reader, params, f"{label}.litellm_params", plain_params)
    if model_name is None or not has_model or lane is MISSING:
        return None
    return ModelEntry(
        name=model_name,
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
    value = reader.value(nodes[name], f"{label}.{name}", kind_of(Text))
    return None if value is MISSING else str(value)


def _warn_without_provider(reader: Reader, params: Table, label: str) -> None:
    """Warn of a ``model`` that names no provider: such an entry would fail at its first request."""
    node = params.nodes.get("model")
    if not isinstance(node, Scalar) or node.variable or "custom_llm_provider" in params.nodes:
        return
    model = node.text
    is_resolved = model.startswith((*_KNOWN_BEGINNINGS, REFERENCE)) or _OF_BEDROCK.search(model)
    if not (is_resolved or {"/", "*"} & set(model)):
        reader.warn(
            node.line,
            f"{label}.model names no provider, so requests for it will fail; write openai/MODEL for a server that "
            "speaks OpenAI's format, else PROVIDER/MODEL",
        )


def _refuse_controls(reader: Reader, table: Table, label: str, values: Mapping[str, JsonValue]) -> None:
    """Note the values that go into header lines and cannot stand there."""
    for name in HEADER_KEYS:
        value = values.get(name)
        lines = value.items() if isinstance(value, Mapping) else [("", value)]
        for header, text in lines:
            if not isinstance(text, str) or not any(ord(character) in CONTROLS for character in text):
                continue
            node = table.nodes[name]
            source = node.nodes[header] if isinstance(node, Table) else node
            stated = str(source.value) if isinstance(source, Scalar) else ""
            is_variable = stated.startswith(REFERENCE)
            whose = f" (the environment variable {stated.removeprefix(REFERENCE)})" if is_variable else ""
            where = f"{label}.{name}" + (f".{header}" if header else "")
            message = f"{where}{whose} has a line break or another control character, which no header may have"
            reader.problem(source.line, f"{message}; remove it, as `printf %s KEY` writes no line break")


def _read_window(reader: Reader, table: Table, label: str) -> WindowNote:
    stated = reader.values(table, label, kinds_of(ModelInfo))
    note = WindowNote(**{key: stated.get(key) for key in WINDOW_KEYS}, beta_windows=_read_betas(reader, table, label))
    if note.context_window and note.max_input_tokens and note.context_window < note.max_input_tokens:
        reader.problem(
            table.nodes["context_window"].line,
            f"{label}.context_window is {note.context_window}, less than max_input_tokens; "
            "it holds input and output together",
        )
    old = table.nodes.get("max_tokens")  # LiteLLM's older key, which may mean input or output
    if isinstance(old, Scalar) and not note.states_window:
        reader.warn(old.line, f"{label}.max_tokens does not state the window; set max_input_tokens")
    return note


def _read_betas(reader: Reader, table: Table, label: str) -> tuple[tuple[str, int], ...]:
    betas = reader.free_table(table.nodes.get(BETA_KEY), f"{label}.{BETA_KEY}").nodes
    kind = kind_of(Tokens)
    read = {name: reader.value(node, f"{label}.{BETA_KEY}.{name}", kind) for name, node in betas.items()}
    return tuple((name, tokens) for name, tokens in read.items() if tokens is not MISSING)


def _warn_of_unused(reader: Reader, node: Node | None) -> None:
    """Warn once of all keys of ``litellm_params`` that have no effect."""
    items = node.nodes if isinstance(node, Items) else ()
    params = [
        table for item in items if isinstance(item, Table) and isinstance(table := item.nodes.get(_PARAMS), Table)
    ]
    lines = {
        name: table.key_lines[name] for table in reversed(params) for name in table.nodes if name in WITHOUT_EFFECT
    }
    if lines:
        reader.warn(
            min(lines.values()),
            f"{', '.join(sorted(lines))} in {_PARAMS} steer LiteLLM's router and proxy and have no effect here; "
            "limits.max_streams bounds requests, and clients decide on retries",
        )


def _warn_of_duplicates(reader: Reader, entries: Iterable[ModelEntry]) -> None:
    first: dict[str, int] = {}
    for entry in entries:
        if entry.name in first:
            reader.warn(
                entry.line,
                f'model_name "{entry.name}" is on line {first[entry.name]} already; that entry is used, '
                "because balancing between several is not available yet",
            )
        first.setdefault(entry.name, entry.line)
