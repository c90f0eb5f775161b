"""Asks servers that load models on demand for the context that a loaded model runs with.

Their lists of models contain no windows. Ollama, LM Studio, llama-swap and others load a model with the context that
the operator set or the memory allows, often 4,096 tokens, and most drop the oldest messages of a longer request without
a word. Each tells the loaded context at an address of its own. None is made to load a model by a question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from urllib.parse import quote

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen

Entry = Mapping[str, JsonValue]
"""A model in a server's list (``/models``)."""


@frozen
class Question:
    """What is asked, and of whom."""

    model: str
    """The model's name at the server."""
    entries: Sequence[Entry]
    get: Callable[[str], Awaitable[JsonValue]]
    """Returns the document at a path behind the server's host; None if there is none."""

    @property
    def full_name(self) -> str:
        """Return the model's id, which the client may have named by an alias."""
        return next((str(entry.get("id")) for entry in self.entries if self.model in names_of(entry)), self.model)

    def answer(self, window: int | None) -> LoadedModels:
        """Return that the model is loaded with this window."""
        return LoadedModels({model_key(self.model): window})


@frozen
class LoadedModels:
    """The models that a server has loaded."""

    windows: Mapping[str, int | None] = field(default_factory=dict)
    """Windows in tokens by ``model_key``; None for one that the server does not tell. Others may be loaded, too."""
    only: int | None = None
    """The window of a server with one model, which takes any name."""


def model_key(name: str) -> str:
    """Return what names of one model have in common: Ollama adds ``:latest``, and reads no case."""
    return name.lower().removesuffix(":latest")


def names_of(entry: Entry) -> Iterator[str]:
    """Yield the names that a server takes for a model: its id, and the aliases of llama.cpp's router and llama-swap."""
    yield str(entry.get("id"))
    meta = entry.get("meta")
    own = meta.get("llamaswap") if isinstance(meta, dict) else None
    for aliases in (entry.get("aliases"), own.get("aliases") if isinstance(own, dict) else None):
        if isinstance(aliases, list):
            yield from (alias for alias in aliases if isinstance(alias, str))


async def loaded_models(question: Question, *, may_be_ollama: bool) -> LoadedModels | None:
    """Return the models that a server has loaded; None if it loads none on demand, or does not say which.

    :param may_be_ollama: whether to ask a server whose models have other owners as an Ollama; its owners are namespaces
    """
    owners = {str(entry.get("owned_by", "")).lower() for entry in question.entries}
    for owner, ask in _BY_OWNER.items():
        if owner in owners:
            return await ask(question)
    return await ollama(question) if may_be_ollama else None


async def ollama(question: Question) -> LoadedModels | None:
    """Read what Ollama runs; versions before July 2025 do not tell the context."""
    return _listed(await question.get("/api/ps"), "models", "name", "context_length")


async def _lm_studio(question: Question) -> LoadedModels | None:
    """Read LM Studio's own list: ``max_context_length`` there is what a model could have, not what it has."""
    answer = await question.get("/api/v0/models")
    return _listed(answer, "data", "id", "loaded_context_length", lambda entry: entry.get("state") == "loaded")


async def _llama_swap(question: Question) -> LoadedModels | None:
    """Ask the model's server if llama-swap runs it: a question to one that does not run would start it."""
    running = _entries(await question.get("/running"), "running")
    if running is None:
        return None
    name = question.full_name
    if name not in [entry.get("model") for entry in running if entry.get("state") == "ready"]:
        return LoadedModels()
    return question.answer(slot_tokens(await question.get(f"/upstream/{quote(name, safe='')}/props")))


async def _llama_cpp(question: Question) -> LoadedModels | None:
    """Read the router of llama.cpp, whose list has the windows of what is loaded, unless it is an older one."""
    states = {str(entry.get("id")): entry.get("status") for entry in question.entries}
    if not any(isinstance(state, dict) for state in states.values()):
        return None
    name = question.full_name
    state = states.get(name)
    if not isinstance(state, dict) or state.get("value") != "loaded":
        return LoadedModels()
    return question.answer(slot_tokens(await question.get(f"/props?model={quote(name, safe='')}&autoload=false")))


async def _koboldcpp(question: Question) -> LoadedModels | None:
    """Read the context that KoboldCpp was started with."""
    answer = await question.get("/api/extra/true_max_context_length")
    tokens = as_tokens(answer.get("value")) if isinstance(answer, dict) else None
    return LoadedModels(only=tokens) if tokens else None


async def _tabby(question: Question) -> LoadedModels | None:
    """Read the loaded model of TabbyAPI."""
    card = await question.get("/v1/model")
    parameters = card.get("parameters") if isinstance(card, dict) else None
    tokens = as_tokens(parameters.get("max_seq_len")) if isinstance(parameters, dict) else None
    return LoadedModels(only=tokens) if tokens else None


_BY_OWNER: Mapping[str, Callable[[Question], Awaitable[LoadedModels | None]]] = {
    "library": ollama,
    "organization_owner": _lm_studio,
    "llama-swap": _llama_swap,
    "llamacpp": _llama_cpp,
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


def _entries(answer: JsonValue, member: str) -> list[Entry] | None:
    listed = answer.get(member) if isinstance(answer, dict) else None
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else None


def _listed(
    answer: JsonValue, member: str, name: str, tokens: str, is_loaded: Callable[[Entry], bool] = lambda _: True
) -> LoadedModels | None:
    """Return the models of a list; None if the answer is no such list."""
    entries = _entries(answer, member)
    if entries is None:
        return None
    loaded = [entry for entry in entries if is_loaded(entry)]
    return LoadedModels(
        {
            model_key(model): as_tokens(entry.get(tokens))
            for entry in loaded
            if isinstance(model := entry.get(name), str)
        }
    )
