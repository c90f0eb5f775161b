"""Reads file and environment into ``Settings``, or raises one error that lists every problem.

The environment replaces the file's values, the file replaces a preset's, and that the defaults. ``cli/main.py`` calls
it first. Presets and ``models.yaml`` are files of ``config/``, which ship with Tidemark.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tidemark.config.access_sections import QuotaSettings
from tidemark.config.credentials import GENERAL, MASTER_KEY, OPEN_DOOR, check_credentials, with_master_key
from tidemark.config.effective import sources_of
from tidemark.config.environment import EnvironmentOverrides, data_folder, read_overrides, warn_of_unknown
from tidemark.config.kinds import is_windows_path
from tidemark.config.models import (
    ENTRY_KEYS,
    ModelDefaults,
    ModelEntry,
    most_specific,
    read_model_defaults,
    read_model_list,
)
from tidemark.config.patterns import read_patterns
from tidemark.config.reader import MISSING, Reader, Remark
from tidemark.config.sections import (
    EMBEDDED,
    ROOT_KINDS,
    SECTIONS,
    CompactionSettings,
    ModelStoreSettings,
    Section,
    StatedKeys,
    StoreSettings,
    TenantSettings,
    TokenizerSettings,
    changed,
)
from tidemark.config.settings import CompactionByModel, Settings
from tidemark.config.tree import Node, Table, YamlError, parse
from tidemark.core.base_urls import lacks_version
from tidemark.core.conversation.native import writes_summaries
from tidemark.core.errors import ConfigError
from tidemark.core.frozen import frozen
from tidemark.core.hosts import is_loopback

T = TypeVar("T")
PLAIN_SECTIONS = tuple(name for name in SECTIONS if name != "compaction.defaults")
ROOT_KEYS = ("model_list", "compaction", *PLAIN_SECTIONS, *ROOT_KINDS)
LITELLM_SECTIONS = (
    "assistant_settings",
    "callback_settings",
    "credential_list",
    "environment_variables",
    "files_settings",
    "finetune_settings",
    "general_settings",
    "guardrails",
    "include",
    "litellm_settings",
    "mcp_servers",
    "mcp_tools",
    "prompts",
    "router_settings",
    "search_tools",
    "vector_store_registry",
)
"""Sections of a LiteLLM proxy's file that have no meaning here. They cause a warning only, because an existing file
must load."""
MAX_BYTES = 4_000_000
"""The longest file, in bytes. A thousand models take 300 kB; a longer file is another one by mistake."""
TENANT = re.compile("[0-9a-f]{32}")
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")
_CLOUDS = ("bedrock/", "vertex_ai/")
"""Providers that Tidemark asks through litellm, in chat completions."""
_MARKS = ("target", "threshold", "retention_ratio")
NO_VERSION = "the path of the upstream's URL has no version; nearly every server wants it to end in /v1"


@frozen
class PresetValues:
    """The keys that a preset states; its file takes only these two sections."""

    compaction: StatedKeys = field(default_factory=dict)
    tokenizer: StatedKeys = field(default_factory=dict)


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Read the settings of a process.

    :param path: the file; None for the one that ``TIDEMARK_CONFIG`` names, or for no file
    :raises ConfigError: each line of the message is ``file:line: message`` and says how to fix the problem
    """
    if path is None and environ.get("TIDEMARK_CONFIG"):
        path = Path(environ["TIDEMARK_CONFIG"])
    reader = Reader(environ, path.absolute().parent if path else None)
    root = Table({}, {}, 0) if path is None else _tree(path, reader)
    settings = _settings(reader, root, path, environ)
    if settings is None:
        raise ConfigError("\n".join(_lines(reader.problems, path)))
    preset = load_preset(settings.preset).compaction if settings.preset else {}
    sources = sources_of(root, path, environ, preset)
    return dataclasses.replace(settings, warnings=_lines(reader.warnings, path), sources=sources)


def _lines(remarks: Collection[Remark], path: Path | None) -> tuple[str, ...]:
    """Format remarks in the order of the file; a remark without a line is about the environment."""
    return tuple(
        f"{path}:{remark.line}: {remark.message}" if remark.line else f"environment: {remark.message}"
        for remark in sorted(set(remarks))
    )


def _tree(path: Path, reader: Reader) -> Table:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{path}:1: the file is longer than {MAX_BYTES:,} bytes; is it another one?")
        tree, problems = parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = len(_LINE_ENDS.findall(error.object[: error.start])) + 1
        raise ConfigError(f"{path}:{line}: the file is not UTF-8 text; save it as UTF-8") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}:1: the file cannot be read: {reason}; name another with --config") from error
    except YamlError as error:
        raise ConfigError(f"{path}:{error.line}: {error.message}") from error
    for line, message in problems:
        reader.problem(line, message)
    return tree


def _settings(reader: Reader, root: Table, path: Path | None, environ: Mapping[str, str]) -> Settings | None:
    """Return the settings, or None if the reader has noted problems."""
    nodes = _without_litellms(reader, root)
    top = {name: reader.value(nodes[name], name, ROOT_KINDS[name]) for name in ROOT_KINDS if name in nodes}
    nodes, tenant_nodes = _tenants(reader, nodes)
    nodes, model_nodes = _split(reader, nodes, "store", "models")
    nodes, quota_nodes = _split(reader, nodes, "limits")
    nodes, pattern_nodes = _split(reader, nodes, "privacy", "redact")
    sections: dict[str, Any] = {name: reader.section(SECTIONS[name], nodes.get(name), name) for name in PLAIN_SECTIONS}
    tenants = _by_tenant(reader, tenant_nodes, changed(StoreSettings(), sections["store"]))
    _check_tls(reader, root, sections, path)
    store_models = _by_name(reader, model_nodes, ModelStoreSettings(), "store.models")
    everybody = changed(QuotaSettings(), sections["limits"].get("per_tenant", {}))
    quotas = _by_name(reader, quota_nodes, everybody, "limits.tenants")
    redact = read_patterns(reader, pattern_nodes)
    preset = _preset(reader, root, top.get("preset"))
    sections["tokenizer"] = {**preset.tokenizer, **sections["tokenizer"]}
    overrides = read_overrides(reader, environ)
    warn_of_unknown(reader, environ)
    secrets = with_master_key(reader, root, overrides.secrets, environ)
    if overrides.store_url is not None:
        sections["store"] = {**sections["store"], "url": overrides.store_url}
    if sections["store"].get("wait_replicas") and sections["store"].get("url", EMBEDDED) == EMBEDDED:
        reader.problem(0, "store.wait_replicas needs a server with replicas in store.url; an embedded store has none")
    for name in ("memory_flush", "events"):
        if sections[name].get("webhook") and secrets.flush is None:
            reader.problem(0, f"{name}.webhook needs TIDEMARK_FLUSH_SECRET, the secret that signs what is posted")
    _check_openid(reader, sections["openid"], has_token=secrets.admin_token is not None)
    sections["encryption"] = _encryption(reader, sections["encryption"], overrides)
    entries = read_model_list(reader, nodes.get("model_list"))
    compaction = _compaction(reader, nodes.get("compaction"), entries, changed(CompactionSettings(), preset.compaction))
    upstream = overrides.upstream or top.get("upstream")
    if sections["auth"].get("mode") == "keys":
        check_credentials(reader, root.key_lines.get("auth", 0), entries, has_upstream=bool(upstream))
    if isinstance(upstream, str) and lacks_version(upstream):
        line = 0 if overrides.upstream else root.key_lines["upstream"]
        reader.warn(line, NO_VERSION)
    folder = _folder(reader, top.get("data_dir"), path, environ)
    if folder is None or reader.problems:
        return None
    return Settings(
        data_dir=folder,
        model_list=entries,
        preset=top.get("preset"),
        tenants=tenants,
        store_models=store_models,
        quotas=quotas,
        redact=redact,
        upstream=upstream,
        compaction=compaction,
        secrets=secrets,
        model_defaults=load_model_defaults(),
        path=path,
        **{name: changed(SECTIONS[name](), keys) for name, keys in sections.items()},
    )


def _folder(reader: Reader, configured: Any, path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the folder for data; note a path of another system, or that there is none."""
    if is_windows_path(environ.get("TIDEMARK_DATA_DIR", "")):
        reader.problem(
            0, "TIDEMARK_DATA_DIR is a path of Windows; write one of this machine, such as /home/me/tidemark"
        )
    folder = data_folder(None if configured is MISSING else configured, path, environ)
    if folder is None:
        reader.problem(0, "there is no home folder to keep data in; set TIDEMARK_DATA_DIR")
    return folder


def _check_openid(reader: Reader, section: StatedKeys, *, has_token: bool) -> None:
    """Refuse a provider that nobody could sign in by, or whose answers others could change."""
    issuer = section.get("issuer")
    if issuer is None:
        return
    if section.get("client_id") is None:
        reader.problem(0, "openid.issuer needs openid.client_id, the name of this server at the provider")
    if not has_token:
        reader.problem(0, "openid.issuer needs TIDEMARK_ADMIN_TOKEN, for whoever signs in while the provider is away")
    parts = urlsplit(str(issuer))
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        reader.problem(0, "openid.issuer must be an https:// address: who reads its answers could sign in as anybody")


def _encryption(reader: Reader, stated: StatedKeys, overrides: EnvironmentOverrides) -> StatedKeys:
    """Return the keys of ``encryption`` with the environment's over them; note two sources of master keys."""
    secrets = overrides.secrets
    if stated.get("key_command") and (secrets.encryption is not None or secrets.encryption_file is not None):
        reader.problem(0, "encryption.key_command and TIDEMARK_ENCRYPTION_KEY are both set; leave one")
    return stated if overrides.keys_url is None else {**stated, "keys_url": overrides.keys_url}


def _tenants(reader: Reader, nodes: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Node]]:
    """Split ``store.tenants`` from the other sections."""
    rest, tenants = _split(reader, nodes, "store")
    for name, node in tenants.items():
        if TENANT.fullmatch(name) is None:
            reader.problem(node.line, "store.tenants takes the 32 hex characters that the log calls tenant")
    return rest, tenants


def _check_tls(reader: Reader, root: Table, sections: Mapping[str, Any], path: Path | None) -> None:
    """Check that the files of TLS are named together, and make their paths absolute: they are relative to the file."""
    tls, line = sections["server"].get("tls", {}), root.key_lines.get("server", 0)
    files = {name: file for name, file in tls.items() if file is not None}
    if files and not {"cert", "key"} <= files.keys():
        reader.problem(line, "server.tls needs both cert and key")
    if files and sections["transport"].get("server") == "library":
        reader.problem(line, "server.tls needs transport.server: own; uvicorn's protocol cannot change certificates")
    folder = Path.cwd() if path is None else path.absolute().parent
    tls.update({name: folder / file.expanduser() for name, file in files.items()})


def _split(
    reader: Reader, nodes: Mapping[str, Any], name: str, key: str = "tenants"
) -> tuple[Mapping[str, Any], Mapping[str, Node]]:
    """Split a section's table by names from its other keys."""
    section = nodes.get(name)
    if not isinstance(section, Table) or key not in section.nodes:
        return nodes, {}
    table = reader.free_table(section.nodes[key], f"{name}.{key}")
    rest = {other: node for other, node in section.nodes.items() if other != key}
    return {**nodes, name: dataclasses.replace(section, nodes=rest)}, table.nodes


def _by_tenant(reader: Reader, nodes: Mapping[str, Node], store: StoreSettings) -> Mapping[str, TenantSettings]:
    """Return each tenant's settings: its own keys, including null, over those of the store."""
    base = TenantSettings(ttl_days=0, max_age_days=store.max_age_days)
    return _by_name(reader, nodes, base, "store.tenants")


def _by_name(reader: Reader, nodes: Mapping[str, Node], base: Section, at: str) -> Mapping[str, Section]:
    """Return the settings of each name in a table: its own keys over those of ``base``."""
    stated = {name: reader.section(type(base), node, f"{at}.{name}") for name, node in nodes.items()}
    return {name: changed(base, keys) for name, keys in stated.items()}


def _preset(reader: Reader, root: Table, name: Any) -> PresetValues:
    """Return the preset's values; warn if the file replaces all, as a copy of ``tidemark.yaml`` does."""
    if name is None or name is MISSING:
        return PresetValues()
    preset = load_preset(name)
    section: Node | None = root
    for key in ("compaction", "defaults"):
        section = section.nodes.get(key) if isinstance(section, Table) else None
    if isinstance(section, Table) and preset.compaction.keys() <= section.nodes.keys():
        line = root.key_lines["preset"]
        reader.warn(line, f"preset {name} has no effect: this file states all its keys itself, in compaction.defaults")
    return preset


def _without_litellms(reader: Reader, root: Table) -> Mapping[str, Any]:
    """Return Tidemark's own keys of the file, and warn of LiteLLM's other sections."""
    nodes = dict(root.nodes)
    for name in LITELLM_SECTIONS:
        section = nodes.pop(name, None)
        if isinstance(section, Table) and name == GENERAL and MASTER_KEY in section.nodes:
            reader.warn(section.key_lines[MASTER_KEY], OPEN_DOOR)
            section = section if len(section.nodes) > 1 else None
        if section is not None:
            reader.warn(root.key_lines[name], f"{name} is LiteLLM's own and is ignored here")
    for name in ENTRY_KEYS:
        if name in nodes and name not in ROOT_KEYS:
            del nodes[name]
            reader.problem(root.key_lines[name], f'"{name}" belongs into an entry of model_list; indent it under "- "')
    return reader.table(dataclasses.replace(root, nodes=nodes), "", ROOT_KEYS).nodes


def _compaction(
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
    """Note marks that contradict each other, if ``keys`` sets one of them."""
    if not any(name in keys for name in _MARKS):
        return
    mark = settings.threshold
    if mark is not None and mark <= 1 and settings.target >= mark:
        reader.problem(
            line,
            f"{label}: target is {settings.target:g}, not below the threshold {mark:g}; "
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


def shipped_file(name: str) -> Traversable:
    """Return a file of ``config/``, which is ``tidemark/_config`` in a wheel and beside ``proxy/`` in a checkout.

    :raises ConfigError: the installation is not complete
    """
    for folder in (files("tidemark") / "_config", Path(__file__).parents[3] / "config"):
        file = folder / name
        if file.is_file():
            return file
    raise ConfigError(f"config/{name} is missing from this installation; install Tidemark again")


@cache
def load_model_defaults() -> ModelDefaults:
    """What the shipped ``config/models.yaml`` knows of models; read once, since it takes some 50 ms.

    :raises ConfigError: the file is missing or damaged
    """
    return _shipped("models.yaml", read_model_defaults)


@cache
def load_preset(name: str) -> PresetValues:
    """Read the shipped ``config/presets/NAME.yaml``.

    :raises ConfigError: the file is missing or damaged
    """

    def read(reader: Reader, root: Table) -> PresetValues:
        top = reader.table(root, "", ("compaction", "tokenizer")).nodes
        compaction = reader.table(top.get("compaction"), "compaction", ("defaults",)).nodes
        return PresetValues(
            reader.section(CompactionSettings, compaction.get("defaults"), "compaction.defaults"),
            reader.section(TokenizerSettings, top.get("tokenizer"), "tokenizer"),
        )

    return _shipped(f"presets/{name}.yaml", read)


def _shipped(name: str, read: Callable[[Reader, Table], T]) -> T:
    """Read a shipped file; any problem in it means that the installation is damaged."""
    try:
        root, problems = parse(shipped_file(name).read_text(encoding="utf-8"))
    except YamlError as error:
        raise ConfigError(f"config/{name}:{error.line}: {error.message}") from error
    reader = Reader({})
    values = read(reader, root)
    remarks = [*problems, *((remark.line, remark.message) for remark in reader.problems)]
    if remarks:
        raise ConfigError("\n".join(f"config/{name}:{line}: {message}" for line, message in remarks))
    return values
