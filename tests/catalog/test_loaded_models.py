"""Servers that load models on demand tell the context of what is loaded, each in a way of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.test_catalog import ALICE, Servers
from tests.catalog.test_overrides import Shelf
from tests.upstream.callers import calling
from tidemark.catalog.catalog import Catalog
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.catalog.loaded_models import Question, loaded_models, model_key
from tidemark.catalog.overrides import LiveOverrides
from tidemark.catalog.probe import (
    FAILED_SECONDS,
    FRESH_SECONDS,
    LEAST_PATIENCE,
    LOADED_SECONDS,
    LOADING_SECONDS,
    MOST_PATIENCE,
    Probe,
)
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.ports import Caller, Route
from tidemark.upstream.upstream import LiteLLMUpstream

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
    "llama-swap, by an alias": (
        {
            "/v1/models": listing("llama-swap", "m", meta={"llamaswap": {"aliases": ["gpt-4o"]}}),
            "/running": {"running": [{"model": "m", "state": "ready"}]},
            "/upstream/m/props": {"default_generation_settings": {"n_ctx": 4096}},
        },
        "gpt-4o",
    ),
    "an older router of llama.cpp": (
        {
            "/v1/models": {
                "data": [
                    {"id": "m", "owned_by": "llamacpp", "status": {"value": "loaded"}, "aliases": ["own"]},
                    {"id": "n", "owned_by": "llamacpp", "status": {"value": "unloaded"}},
                ]
            },
            "/props?model=m&autoload=false": {"default_generation_settings": {"n_ctx": 4096}},
        },
        "own",
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


async def test_ollamas_server_gets_no_key_of_a_caller() -> None:
    """No request of litellm's brings it there; its address is often plain HTTP."""
    asked: list[Caller] = []

    async def get_json(_route: Route, _url: str, caller: Caller, *, timeout_seconds: float) -> JsonValue:
        asked.append(caller)
        return ollama(m=4096)

    secret = calling(("authorization", "Bearer secret"), ("cookie", "c=1"), fingerprint=b"alice")
    assert await Probe(get_json).window(route("m", HOST, "ollama"), secret) == 4096
    assert [caller.headers for caller in asked] == [()]


class Clocked:
    """A probe before servers that change, at a clock that the test moves."""

    def __init__(self, documents: Mapping[str, JsonValue]) -> None:
        self.servers = servers_of(documents)
        self.now = 0.0
        self.probe = Probe(self.servers.get_json, clock=lambda: self.now)

    async def after(self, seconds: float, model: str = "m", **documents: JsonValue) -> int | None:
        """The window after a while, once nobody asks any more; ``ps`` is what Ollama runs then."""
        self.now += seconds
        if "ps" in documents:
            self.servers.answers = {**self.servers.answers, HOST + "/api/ps": documents["ps"]}
        found = await self.probe.window(route(model), ALICE)
        for _ in range(8):  # who knows a window does not wait for the next answer
            await asyncio.sleep(0)
        return found

    @property
    def count(self) -> int:
        """How often the server was asked for its list."""
        return [url for url, _ in self.servers.asked].count(BASE + "/models")


OLLAMA: dict[str, JsonValue] = {"/v1/models": listing("hf.co/somebody", "m"), "/api/ps": ollama()}


async def test_a_model_is_asked_for_again_until_its_first_request_has_loaded_it() -> None:
    """Soon, and then less often; what was known is not lost if it is unloaded, or the server does not answer."""
    asking = Clocked(OLLAMA)
    assert await asking.after(0) is None
    assert asking.probe.is_loading(route("m"))
    assert await asking.after(LEAST_PATIENCE, ps=ollama(m=4096)) == 4096
    assert not asking.probe.is_loading(route("m"))
    assert await asking.after(LOADED_SECONDS / 2, ps=ollama(m=8192)) == 4096
    assert await asking.after(LOADED_SECONDS) == 4096  # this one does not wait for the answer
    assert await asking.after(0) == 8192
    assert await asking.after(LOADED_SECONDS, ps=ollama()) == await asking.after(0) == 8192
    asking.servers.answers = {BASE + "/models": listing("hf.co/somebody", "m")}
    assert await asking.after(LOADED_SECONDS) == await asking.after(FAILED_SECONDS) == 8192


async def test_a_window_that_the_next_request_knows_is_not_noted_as_assumed(tmp_path: Path) -> None:
    """The registry shows what it was told first for an hour."""
    asking, live = Clocked(OLLAMA), LiveOverrides(Shelf(), lambda: 0.0)
    catalog = Catalog(LiteLLMUpstream(), data=LiteLLMModelData(tmp_path / "none"), probe=asking.probe, live=live)
    await catalog.profile(route("m"), ALICE)
    assert live.noted("openai:m") is None
    asking.servers.answers = {**asking.servers.answers, HOST + "/api/ps": ollama(m=4096)}
    asking.now += LEAST_PATIENCE
    await catalog.profile(route("m"), ALICE)
    noted = live.noted("openai:m")
    assert noted is not None
    assert (noted.window.window, noted.window.source) == (4096, "api")


async def test_a_server_that_never_tells_is_not_asked_at_each_request() -> None:
    """A model of a cloud, say. After a minute its window counts as one that nobody tells."""
    asking = Clocked(OLLAMA)
    assert [await asking.after(0.01) for _ in range(1000)] == [None] * 1000
    assert asking.count < 15
    assert await asking.after(LOADING_SECONDS) is None
    assert not asking.probe.is_loading(route("m"))
    count = asking.count
    assert [await asking.after(MOST_PATIENCE / 2) for _ in range(10)] == [None] * 10
    assert asking.count <= count + 6


async def test_an_older_ollama_is_not_asked_at_each_request() -> None:
    """It runs the model, and tells no context."""
    asking = Clocked({**OLLAMA, "/api/ps": {"models": [{"name": "m:latest"}]}})
    assert [await asking.after(1) for _ in range(100)] == [None] * 100
    assert asking.count == 1
    assert not asking.probe.is_loading(route("m"))


async def test_another_program_at_the_address_is_noticed() -> None:
    """Ollama has gone, and vLLM lists its windows there."""
    asking = Clocked({**OLLAMA, "/api/ps": ollama(m=4096)})
    assert await asking.after(0) == 4096
    asking.servers.answers = {BASE + "/models": {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 32768}]}}
    await asking.after(LOADED_SECONDS)
    assert await asking.after(0) == 32768


async def test_a_server_without_models_is_asked_again_soon() -> None:
    """The operator is about to install one."""
    asking = Clocked({"/v1/models": {"data": []}, "/api/ps": ollama(m=4096)})
    assert await asking.after(0) is None
    asking.servers.answers = {HOST + "/v1/models": listing("library", "m"), HOST + "/api/ps": ollama(m=4096)}
    assert await asking.after(FAILED_SECONDS) == 4096
    assert FAILED_SECONDS < FRESH_SECONDS


async def test_llama_swap_is_asked_for_the_models_own_server_only() -> None:
    """A question to another one would start it, or keep it from its rest."""
    asking = Clocked(
        {
            "/v1/models": listing("llama-swap", "m", "n", "o"),
            "/running": {"running": [{"model": name, "state": "ready"} for name in "mn"]},
            **{f"/upstream/{name}/props": {"default_generation_settings": {"n_ctx": 4096}} for name in "mno"},
        }
    )
    assert await asking.after(0, "o") is None
    assert await asking.after(1, "m") == 4096
    assert {url for url, _ in asking.servers.asked if "/upstream/" in url} == {HOST + "/upstream/m/props"}


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

    found = await loaded_models(Question("m", [{"id": "m", "owned_by": owner}], get), may_be_ollama=True)
    assert found is None or all(tokens is None or tokens > 0 for tokens in found.windows.values())
