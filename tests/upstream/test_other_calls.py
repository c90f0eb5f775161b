"""Embeddings and reranking through litellm, for providers that do not speak OpenAI's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx

from tests.upstream.callers import everything
from tidemark.core.errors import DialectNotServed, InvalidRequest
from tidemark.core.ports import Caller, UpstreamReply
from tidemark.server.auth import PassthroughAuth
from tidemark.upstream.litellm import load
from tidemark.upstream.upstream import LiteLLMUpstream

BOB = Caller(b"bob", ((b"authorization", b"Bearer bobs-key"),))
EMBEDDED = {
    "object": "list",
    "model": "voyage-3",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, 0.5]}],
    "usage": {"total_tokens": 3},
}
RANKING = b'{"model": "ranker", "query": "tide", "documents": ["a"]}'
RANKED = {"id": "r1", "results": [{"index": 1, "relevance_score": 0.9}], "meta": {"billed_units": {"search_units": 1}}}


@pytest.fixture(scope="module", autouse=True)
def litellm() -> None:
    """Imported beforehand: pytest's filter of warnings is the whole process's."""
    load().result(60)


@pytest.fixture
def upstream() -> LiteLLMUpstream:
    """One model for each call; one of them has a key of its own."""
    entries = [("embedder", "voyage/voyage-3", "ours"), ("ranker", "cohere/rerank-v3.5", None)]
    return LiteLLMUpstream(
        [
            {"model_name": name, "litellm_params": {"model": model, **({"api_key": key} if key else {})}}
            for name, model, key in entries
        ]
    )


@pytest.fixture
def provider() -> Iterator[respx.Router]:
    """The providers' addresses; any other request fails the test."""
    with respx.mock(assert_all_called=False) as router:
        router.post("https://api.voyageai.com/v1/embeddings", name="voyage").respond(json=EMBEDDED)
        router.post("https://api.cohere.com/v2/rerank", name="cohere").respond(json=RANKED)
        yield router


async def post(upstream: LiteLLMUpstream, path: str, **members: Any) -> UpstreamReply:
    """Send a request as the endpoint does."""
    route = await upstream.resolve(members["model"])
    return await upstream.forward(route, "POST", path, json.dumps(members).encode(), BOB)


async def test_embeddings_come_in_openais_format(upstream: LiteLLMUpstream, provider: respx.Router) -> None:
    """Whatever the provider calls its parameters; the configured key is sent."""
    reply = await post(upstream, "/embeddings", model="embedder", input=["tide"], dimensions=2, encoding_format=None)
    body = json.loads(await everything(reply))
    assert (reply.status, body["data"]) == (200, EMBEDDED["data"])
    assert body["usage"]["total_tokens"] == 3
    sent = provider["voyage"].calls.last.request
    assert sent.headers["authorization"] == "Bearer ours"
    assert json.loads(sent.content) == {"model": "voyage-3", "input": ["tide"], "output_dimension": 2}


async def test_documents_are_ranked_with_the_callers_key(upstream: LiteLLMUpstream, provider: respx.Router) -> None:
    """Where none is configured."""
    reply = await post(upstream, "/rerank", model="ranker", query="tide", documents=["a", "b"], top_n=1)
    assert json.loads(await everything(reply))["results"] == RANKED["results"]
    sent = provider["cohere"].calls.last.request
    assert "bobs-key" in sent.headers["authorization"]
    assert json.loads(sent.content)["top_n"] == 1


async def test_the_trace_of_a_request_reaches_the_provider(upstream: LiteLLMUpstream, provider: respx.Router) -> None:
    """Where litellm sends further headers; of an embedding it drops them for some providers, as Voyage."""
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    caller = PassthroughAuth(b"s").caller([*BOB.headers, (b"traceparent", parent.encode())])
    await upstream.forward(await upstream.resolve("ranker"), "POST", "/rerank", RANKING, caller)
    assert provider["cohere"].calls.last.request.headers["traceparent"] == parent


async def test_a_providers_refusal_keeps_its_status(upstream: LiteLLMUpstream, provider: respx.Router) -> None:
    """In OpenAI's envelope."""
    provider["voyage"].mock(return_value=httpx.Response(429, json={"detail": "Slow down."}))
    reply = await post(upstream, "/embeddings", model="embedder", input="tide")
    assert reply.status == 429
    assert "error" in json.loads(await everything(reply))
    assert len(provider["voyage"].calls) == 1


async def test_a_body_cannot_change_destination_or_credential(
    upstream: LiteLLMUpstream, provider: respx.Router
) -> None:
    """Only the reference's members reach litellm."""
    elsewhere = {"api_base": "http://127.0.0.1:1", "api_key": "mine", "custom_llm_provider": "openai"}
    await post(upstream, "/embeddings", model="embedder", input="tide", **elsewhere)
    assert provider["voyage"].calls.last.request.headers["authorization"] == "Bearer ours"


@pytest.mark.parametrize(
    ("path", "members", "missing"),
    [
        ("/embeddings", {}, "input"),
        ("/rerank", {"documents": ["a"]}, "query"),
        ("/rerank", {"query": "a"}, "documents"),
    ],
)
async def test_a_missing_member_is_named(
    upstream: LiteLLMUpstream, path: str, members: dict[str, Any], missing: str
) -> None:
    """Before the provider is asked."""
    model = "embedder" if path == "/embeddings" else "ranker"
    with pytest.raises(InvalidRequest) as refused:
        await post(upstream, path, model=model, **members)
    assert refused.value.param == missing


async def test_other_calls_are_refused_with_the_way_out(upstream: LiteLLMUpstream) -> None:
    """Images and audio have no common format."""
    with pytest.raises(DialectNotServed):
        await post(upstream, "/images/generations", model="embedder", prompt="A harbour")
