"""Servers that load models on demand tell the context of what is loaded, each in a way of its own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.test_catalog import ALICE, Servers
from tidemark.catalog.loaded_models import loaded_windows, model_key
from tidemark.catalog.probe import LOADED_SECONDS, UNLOADED_SECONDS, Probe
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.ports import Route

HOST = "http://127.0.0.1:9"
BASE = HOST + "/v1"


def route(model: str, base: str = BASE, provider: str = "openai") -> Route:
    """The route of a model at a server that the configuration names."""
    return Route("wire", model, model, provider, base, params={"api_base": base})


def listing(owner: str, *names: str, **more: JsonValue) -> JsonValue:
    """What ``/models`` answers: no windows."""
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": owner, **more} for name in names]}


def ollama(**contexts: int) -> JsonValue:
    """What ``/api/ps`` answers."""
    return {"models": [{"name": f"{name}:latest", "context_length": size} for name, size in contexts.items()]}


PROGRAMS: dict[str, tuple[dict[str, JsonValue], str]] = {
    "Ollama": ({"/v1/models": listing("library", "m:latest", "n"), "/api/ps": ollama(m=4096)}, "m"),
    "Ollama, with models of somebody": ({"/v1/models": listing("hf.co/somebody", "M"), "/api/ps": ollama(m=4096)}, "M"),
    "LM Studio": (
        {
            "/v1/models": listing("organization_owner", "m", "n"),
            "/api/v0/models": {
                "data": [
                    {"id": "m", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 4096},
                    {"id": "n", "state": "not-loaded", "max_context_length": 131072},
                ]
            },
        },
        "m",
    ),
    "llama-swap": (
        {
            "/v1/models": listing("llama-swap", "a/m", "n"),
            "/running": {"running": [{"model": "a/m", "state": "ready"}, {"model": "n", "state": "starting"}]},
            "/upstream/a%2Fm/props": {"default_generation_settings": {"n_ctx": 4096}},
            "/upstream/n/props": {"default_generation_settings": {"n_ctx": 1}},
        },
        "a/m",
    ),
    "KoboldCpp": (
        {"/v1/models": listing("koboldcpp", "koboldcpp/m"), "/api/extra/true_max_context_length": {"value": 4096}},
        "any",
    ),
    "TabbyAPI": (
        {"/v1/models": listing("tabbyAPI", "m", "n"), "/v1/model": {"id": "m", "parameters": {"max_seq_len": 4096}}},
        "m",
    ),
    "the router of llama.cpp": (
        {
            "/v1/models": {
                "data": [
                    {"id": "m", "owned_by": "llamacpp", "status": {"value": "loaded"}, "meta": {"n_ctx": 4096}},
                    {"id": "n", "owned_by": "llamacpp", "status": {"value": "unloaded"}},
                ]
            }
        },
        "m",
    ),
}


def servers_of(documents: Mapping[str, JsonValue]) -> Servers:
    """A server with these documents."""
    return Servers({HOST + path: document for path, document in documents.items()})


@pytest.mark.parametrize("program", PROGRAMS)
async def test_the_window_is_what_the_model_was_loaded_with(program: str) -> None:
    """Not what it was trained for, which is mostly far more."""
    documents, model = PROGRAMS[program]
    assert await Probe(servers_of(documents).get_json).window(route(model), ALICE) == 4096


@pytest.mark.parametrize("program", [name for name, (_, model) in PROGRAMS.items() if model == "m"])
async def test_a_model_that_is_not_loaded_has_no_window_yet(program: str) -> None:
    """No server is made to load one by a question; TabbyAPI has one model, whatever its list says."""
    documents, _ = PROGRAMS[program]
    found = await Probe(servers_of(documents).get_json).window(route("n"), ALICE)
    assert found == (4096 if program == "TabbyAPI" else None)


async def test_litellms_requests_to_ollama_keep_to_the_loaded_context_too() -> None:
    """Its base URL has no ``/v1``, and no list of OpenAI's form is there."""
    servers = servers_of({"/api/ps": ollama(m=4096)})
    found = await Probe(servers.get_json).window(route("m", HOST, "ollama_chat"), ALICE)
    assert (found, [url for url, _ in servers.asked]) == (4096, [HOST + "/api/ps"])


async def test_an_ollama_is_asked_again_soon() -> None:
    """A model's first request loads it, and it may be loaded anew with more; what was known is not lost meanwhile."""
    servers = servers_of({"/v1/models": listing("library", "m"), "/api/ps": ollama()})
    now = 0.0
    probe, where = Probe(servers.get_json, clock=lambda: now), route("m")

    async def window_after(seconds: float, running: JsonValue) -> int | None:
        nonlocal now
        now += seconds
        servers.answers = {**servers.answers, HOST + "/api/ps": running}
        return await probe.window(where, ALICE)

    assert await window_after(0, ollama()) is None
    assert await window_after(UNLOADED_SECONDS, ollama(m=4096)) == 4096
    assert await window_after(LOADED_SECONDS / 2, ollama(m=8192)) == 4096
    assert await window_after(LOADED_SECONDS, ollama(m=8192)) == 8192
    assert await window_after(LOADED_SECONDS, ollama()) == 8192
    servers.answers = {}
    assert await window_after(LOADED_SECONDS, None) == 8192


async def test_strangers_on_the_internet_are_not_asked_for_addresses_of_ollamas() -> None:
    """A provider's list without windows is no Ollama, unless the owner of its models says so."""
    base = "https://models.example.com/v1"
    servers = Servers({base + "/models": listing("somebody", "m", "n")})
    assert await Probe(servers.get_json).window(route("m", base), ALICE) is None
    assert [url for url, _ in servers.asked] == [base + "/models"]


def test_a_name_without_a_tag_is_the_latest() -> None:
    """Ollama's rule; its names have no case."""
    assert model_key("Llama3.2") == model_key("llama3.2:latest") != model_key("llama3.2:1b")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["models", "data", "running", "name", "id", "model", "state", "value", "parameters", "n_ctx"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    owner=st.sampled_from(["library", "organization_owner", "llama-swap", "koboldcpp", "tabbyAPI", "x"]), told=ANY_JSON
)
async def test_whatever_a_server_tells_is_read_or_passed_over(owner: str, told: JsonValue) -> None:
    """A server on a usual port may be anything; a window is a positive number of tokens."""

    async def get(_: str) -> JsonValue:
        return told

    found = await loaded_windows([{"id": "m", "owned_by": owner}], get, may_be_ollama=True)
    assert found is None or all(tokens > 0 for tokens in found.values())
