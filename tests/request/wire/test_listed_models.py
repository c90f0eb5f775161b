"""The list of models, as OpenAI's and Anthropic's clients read it: configuration and upstream in one list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import ModelInfo

from tests.request.conftest import Bench, Client, benched
from tests.support.serving import NO_TLS

CONFIG = """
upstream: "{base}"
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
"""
CLAUDE = {"anthropic-version": "2023-06-01"}
THEIRS: list[dict[str, Any]] = [
    {"id": "gpt-4o", "object": "model", "created": 1_700_000_000, "owned_by": "tests", "other": {"kept": True}},
    {"id": "org/model:free", "object": "model", "created": 1, "context_length": 5_000},
]


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("models")) as bench:
        bench.upstream.models = {"object": "list", "data": THEIRS}
        yield bench


@pytest.fixture(scope="module")
def client(bench: Bench) -> Client:
    """A client of a Tidemark with one configured model and one upstream."""
    return bench.client("models", config=CONFIG)


def test_configured_and_upstream_models_are_one_list(client: Client) -> None:
    """Each with its window and longest reply, where they are known; members of the upstream stay."""
    entries = {entry["id"]: entry for entry in client.http.get("/v1/models").json()["data"]}
    assert list(entries) == ["small", "gpt-4o", "org/model:free"]
    assert (entries["small"]["context_length"], entries["small"]["max_output_tokens"]) == (2000, 200)
    assert (entries["gpt-4o"]["context_length"], entries["gpt-4o"]["max_output_tokens"]) == (128_000, 16_384)
    assert entries["gpt-4o"]["other"] == {"kept": True}
    assert entries["org/model:free"]["context_length"] == 5_000


@pytest.mark.parametrize("name", ["small", "gpt-4o", "org/model:free"])
def test_one_model_is_the_entry_of_the_list(client: Client, name: str) -> None:
    """Also one whose id has a slash; in both formats."""
    for headers in ({}, CLAUDE):
        entries = client.http.get("/v1/models", headers=headers).json()["data"]
        shown = client.http.get(f"/v1/models/{name}", headers=headers).json()
        assert shown in entries
        assert shown["id"] == name


def test_anthropics_clients_get_anthropics_list(client: Client) -> None:
    """Valid by the SDK's own model, with windows under Anthropic's names."""
    page = client.http.get("/v1/models", headers=CLAUDE).json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "small", "org/model:free")
    models = {entry["id"]: ModelInfo.model_validate(entry) for entry in page["data"]}
    assert (models["small"].max_input_tokens, models["small"].max_tokens) == (2000, 200)
    assert (models["gpt-4o"].created_at.year, models["gpt-4o"].display_name) == (2023, "gpt-4o")


def test_anthropics_sdk_turns_the_pages(client: Client) -> None:
    """Its own iterator, over pages of two."""
    http = anthropic.DefaultHttpxClient(verify=NO_TLS)
    with anthropic.Anthropic(api_key="k", base_url=str(client.http.base_url), http_client=http) as sdk:
        assert [model.id for model in sdk.models.list(limit=2)] == ["small", "gpt-4o", "org/model:free"]
        assert sdk.models.retrieve("org/model:free").max_input_tokens == 5_000
    backward = client.http.get("/v1/models?limit=1&before_id=org/model:free", headers=CLAUDE).json()
    assert ([entry["id"] for entry in backward["data"]], backward["has_more"]) == (["gpt-4o"], True)


def test_an_unknown_model_is_a_404_of_each_dialect(client: Client) -> None:
    """OpenAI's envelope, or Anthropic's."""
    plain = client.http.get("/v1/models/none/at/all")
    assert (plain.status_code, plain.json()["error"]["code"]) == (404, "model_not_found")
    claude = client.http.get("/v1/models/none/at/all", headers=CLAUDE)
    assert (claude.status_code, claude.json()["type"]) == (404, "error")
    assert claude.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1001", "9" * 30, "0" * 5_000])
def test_a_limit_that_is_none_is_refused(client: Client, limit: str) -> None:
    """400, with the member's name."""
    got = client.http.get(f"/v1/models?limit={limit}", headers=CLAUDE)
    assert (got.status_code, got.json()["error"]["param"]) == (400, "limit")


def test_a_page_after_an_unknown_model_begins_at_the_start(client: Client) -> None:
    """A model may have gone since the page before."""
    page = client.http.get("/v1/models?limit=1&after_id=gone", headers=CLAUDE).json()
    assert (page["first_id"], page["has_more"]) == ("small", True)
