"""``strategy: native``: the provider writes the summary, and the thinking of the turns that stay is valid behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pipeline.conftest import Bench
from tests.pipeline.test_bound_thinking import Talker
from tests.providers.anthropic_compaction import CompactingAnthropic

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{{{model: openai/{model}, api_base: "{{base}}"}}}}
    model_info: {{{{max_input_tokens: {{window}}, max_output_tokens: 200{info}}}}}
compaction:
  defaults: {{{{strategy: native, retention_tokens: 400, min_tokens: 300{{more}}}}}}
"""
NATIVE = CONFIG.format(model="claude-opus-5-5", info="")


@pytest.fixture
def api(bench: Bench) -> CompactingAnthropic:
    """Anthropic's API behind the bench."""
    bench.upstream.script = CompactingAnthropic()
    return bench.upstream.script


@pytest.fixture
def talker_of(bench: Bench, api: CompactingAnthropic, request: pytest.FixtureRequest) -> Callable[..., Talker]:
    """Makes a client of a Tidemark of its own."""
    assert bench.upstream.script is api
    return lambda config=NATIVE, **settings: Talker(bench.client(request.node.nodeid, config=config, **settings))


def sent_bodies(bench: Bench) -> list[Json]:
    """The bodies of all requests for messages."""
    return [received.json for received in bench.upstream.received if "compaction" not in received.json]


def block_of(body: Json) -> Json | None:
    """The provider's summary in a request."""
    content = body["messages"][0]["content"]
    return content[0] if isinstance(content, list) and content[0]["type"] == "compaction" else None


def thoughts_in(body: Json) -> list[bool]:
    """Whether each answer in a request has its thinking."""
    answers = [said for said in body["messages"] if said["role"] == "assistant" and said["content"] != []]
    return [
        any(block["type"] == "thinking" for block in said["content"])
        for said in answers
        if said["content"][0]["type"] != "compaction"
    ]


def test_the_provider_writes_the_summaries_and_all_thinking_stays(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """Nothing is refused or left out in several compactions, for a client that knows nothing of them."""
    talker = talker_of()
    talker.talk(40)
    assert api.refusals == []
    assert talker.actions.count("compacted") >= 2
    assert len(api.compactions) >= 2
    carrying = [body for body in sent_bodies(bench) if block_of(body)]
    assert carrying
    assert all(all(thoughts_in(body)) for body in carrying)
    assert {answer.headers.get("x-tidemark-strategy", "native") for answer in talker.answers} == {"native"}
    assert not any("x-tidemark-warning" in answer.headers for answer in talker.answers)
