"""``threshold: price`` through a running server: a talk in a large window is compacted as soon as that pays."""

from __future__ import annotations

from typing import Any

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import assistant, long, user
from tests.support.scripted import says

CONFIG = """
model_list:
  - model_name: dear
    litellm_params: {{model: openai/gpt-4o, api_base: "{base}"}}
    model_info:
      max_input_tokens: 1000000
      max_output_tokens: 4000
      input_cost_per_token: 0.000001
      output_cost_per_token: 0.000005
      cache_read_input_token_cost: 0.0000001
      cache_creation_input_token_cost: 0.00000125
  - model_name: writes
    litellm_params: {{model: openai/gpt-4o, api_base: "{base}"}}
    model_info: &writes
      max_input_tokens: 1000000
      max_output_tokens: 4000
      input_cost_per_token: 0.000001
      output_cost_per_token: 0.000005
      cache_read_input_token_cost: 0.0000001
      cache_creation_input_token_cost: 0.00005
  - model_name: forgets
    litellm_params: {{model: openai/gpt-4o, api_base: "{base}"}}
    model_info: {{<<: *writes, cache_seconds: 0.000001}}
  - model_name: free
    litellm_params: {{model: openai/gpt-4o, api_base: "{base}"}}
    model_info: {{max_input_tokens: 1000000, max_output_tokens: 4000}}
compaction:
  defaults: {{strategy: extractive, threshold: price, price_floor: 4000, retention_tokens: 200, min_tokens: 300}}
"""


def largest_forwarded(bench: Bench, client: Client, model: str) -> int:
    """The most tokens that went out of a talk of some 12,000 tokens."""
    bench.upstream.script = says("Yes, that is so.")
    messages: list[dict[str, Any]] = []
    sizes, whole_tokens = [], 0
    for number in range(30):
        messages.append(user(long(number, 500)))
        got = client.chat(messages, model=model)
        assert got.status_code == 200, got.text
        sizes.append(int(got.headers["x-tidemark-tokens-after"]))
        whole_tokens = int(got.headers["x-tidemark-tokens-before"])
        bench.settle()
        messages.append(assistant("Yes, that is so."))
    assert whole_tokens > 11_000
    return max(sizes)


def test_a_model_with_a_price_is_compacted_near_its_floor(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Its window of a million would never be filled."""
    client = bench.client(request.node.name, config=CONFIG)
    assert 4000 < largest_forwarded(bench, client, "dear") < 9000


def test_a_model_without_a_price_is_not(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A share of its window is its threshold, as without the key."""
    client = bench.client(request.node.name, config=CONFIG)
    assert largest_forwarded(bench, client, "free") > 11_000


def test_a_cache_that_has_run_out_is_a_free_moment(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A compaction would cost a cache write; without a cached prefix the next turn writes everything anyway."""
    client = bench.client(request.node.name, config=CONFIG)
    assert largest_forwarded(bench, client, "writes") > 11_000
    assert largest_forwarded(bench, client, "forgets") < 9000


@pytest.mark.parametrize(("threshold", "mend"), [("price", ""), ("4000", "raise threshold")])
def test_a_retention_of_ones_own_stays_or_is_told_what_to_raise(
    bench: Bench, request: pytest.FixtureRequest, threshold: str, mend: str
) -> None:
    """By price 6,000 tokens stay, far above the low water of 1,000; a threshold of 4,000 does not allow them."""
    config = CONFIG.replace("threshold: price", f"threshold: {threshold}")
    client = bench.client(request.node.name, config=config)
    bench.upstream.script = says("Yes, that is so.")
    messages: list[dict[str, Any]] = []
    compacted = []
    for number in range(60):
        messages.append(user(long(number, 500)))
        got = client.chat(messages, model="dear", retention_tokens="6000")
        assert got.status_code == 200, got.text
        bench.settle()
        messages.append(assistant("Yes, that is so."))
        if got.headers["x-tidemark-action"] == "compacted":
            compacted.append(got.headers)
    assert compacted
    for headers in compacted:
        assert mend in headers.get("x-tidemark-warning", "")
        assert mend or int(headers["x-tidemark-tokens-after"]) > 5500
        assert not mend or int(headers["x-tidemark-tokens-after"]) <= 4000
