"""Asks servers that load models on demand for the context that each loaded model runs with.

Their lists of models contain no windows. Ollama, LM Studio, llama-swap and others load a model with the context that
the operator set or the memory allows, often 4,096 tokens, and most drop the oldest messages of a longer request without
a word. Each tells the loaded context at an address of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

from tidemark.core.conversation.messages import JsonValue

GetDocument = Callable[[str], Awaitable[JsonValue]]
"""Returns the document at a path behind the server's host; None if there is none."""
Entries = Sequence[Mapping[str, JsonValue]]
Windows = Mapping[str, int]
"""Windows in tokens, by ``model_key``."""
ANY_MODEL = ""
"""Stands for the model of a server with one model, which takes any name."""
MOST_ASKED = 8
"""The most loaded models of one llama-swap that are asked one by one."""


def model_key(name: str) -> str:
    """Return what names of one model have in common: Ollama adds ``:latest``, and reads no case."""
    return name.lower().removesuffix(":latest")


async def loaded_windows(entries: Entries, get: GetDocument, *, may_be_ollama: bool) -> Windows | None:
    """Return the windows of the models that a server has loaded; None if it does not load models on demand.

    :param entries: its list of models, as at ``/models``; the owner of a model names the program
    :param may_be_ollama: whether to ask a server with other owners as an Ollama, whose owners are its namespaces
    """
    owners = {str(entry.get("owned_by", "")).lower() for entry in entries}
    for owner, ask in _BY_OWNER.items():
        if owner in owners:
            return await ask(get) or {}
    if "llamacpp" in owners:
        is_router = any(isinstance(entry.get("status"), dict) for entry in entries)
        return {} if is_router else None  # the router's list has the windows of what is loaded
    return await ollama_windows(get) if may_be_ollama else None


async def ollama_windows(get: GetDocument) -> Windows | None:
    """Read what Ollama runs; versions before July 2025 do not tell the context."""
    return _windows(await get("/api/ps"), "models", "name", "context_length")


async def _lm_studio(get: GetDocument) -> Windows | None:
    """Read LM Studio's own list: ``max_context_length`` there is what a model could have, not what it has."""
    return _windows(await get("/api/v0/models"), "data", "id", "loaded_context_length")


async def _llama_swap(get: GetDocument) -> Windows | None:
    """Read what llama-swap runs, and ask each of these servers; to ask one that does not run would start it."""
    running = [entry for entry in _entries(await get("/running"), "running") or [] if entry.get("state") == "ready"]
    names = [name for entry in running if isinstance(name := entry.get("model"), str)]
    windows = {name: slot_tokens(await get(f"/upstream/{quote(name, safe='')}/props")) for name in names[:MOST_ASKED]}
    return {model_key(name): tokens for name, tokens in windows.items() if tokens}


async def _koboldcpp(get: GetDocument) -> Windows | None:
    """Read the context that KoboldCpp was started with."""
    answer = await get("/api/extra/true_max_context_length")
    tokens = as_tokens(answer.get("value")) if isinstance(answer, dict) else None
    return {ANY_MODEL: tokens} if tokens else None


async def _tabby(get: GetDocument) -> Windows | None:
    """Read the loaded model of TabbyAPI."""
    card = await get("/v1/model")
    parameters = card.get("parameters") if isinstance(card, dict) else None
    tokens = as_tokens(parameters.get("max_seq_len")) if isinstance(parameters, dict) else None
    return {ANY_MODEL: tokens} if tokens else None


_BY_OWNER: Mapping[str, Callable[[GetDocument], Awaitable[Windows | None]]] = {
    "library": ollama_windows,
    "organization_owner": _lm_studio,
    "llama-swap": _llama_swap,
    "koboldcpp": _koboldcpp,
    "tabbyapi": _tabby,
}


def slot_tokens(props: JsonValue) -> int | None:
    """Return the context of one slot of llama.cpp, which is what a request may use, from its ``/props``."""
    settings = props.get("default_generation_settings") if isinstance(props, dict) else None
    return as_tokens(settings.get("n_ctx")) if isinstance(settings, dict) else None


def as_tokens(value: JsonValue) -> int | None:
    """Return a positive count of tokens; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _entries(answer: JsonValue, member: str) -> list[Mapping[str, JsonValue]] | None:
    listed = answer.get(member) if isinstance(answer, dict) else None
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else None


def _windows(answer: JsonValue, member: str, name: str, tokens: str) -> Windows | None:
    """Return the windows of a list of models; None if the answer is no such list."""
    entries = _entries(answer, member)
    if entries is None:
        return None
    return {
        model_key(model): window
        for entry in entries
        if isinstance(model := entry.get(name), str) and (window := as_tokens(entry.get(tokens)))
    }
