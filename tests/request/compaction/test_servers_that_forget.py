"""Servers that drop the beginning of what is too long for them, without a word; Ollama is the best known."""

from __future__ import annotations

import pytest

from tests.providers.ollama import ForgetfulOllama
from tests.request.conftest import Bench
from tests.request.talk import Said, assistant, long, system, user

CONTEXT = 2000
TURNS = 60
WIRE = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/{{model}}, api_base: "{base}"}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300}}
"""


def talk(bench: Bench, model: str, turns: int = TURNS) -> list[str]:
    """Hold a conversation; return what was done at each turn."""
    client = bench.client("k", config=WIRE.replace("{{model}}", model))
    said: list[Said] = [system("Be brief.")]
    actions: list[str] = []
    for number in range(turns):
        said.append(user(long(number)))
        got = client.chat(said)
        assert got.status_code == 200, got.text
        actions.append(got.headers["x-tidemark-action"])
        said.append(assistant("Noted."))
    return actions


@pytest.mark.parametrize("model", ["llama3.2", "llama3.2:latest", "qwen3:8b"])
def test_nothing_is_forgotten_at_a_server_that_loads_models_on_demand(bench: Bench, model: str) -> None:
    """Nobody stated a window: the server tells what it loaded the model with, and the talk stays within that."""
    ollama = ForgetfulOllama(CONTEXT)
    ollama.serve(bench.upstream)
    actions = talk(bench, model)
    assert actions.count("compacted") >= 2
    assert sum(ollama.forgotten) == 0


def test_nobody_is_told_to_state_a_window_that_the_next_request_knows(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first request loads the model."""
    ForgetfulOllama(CONTEXT).serve(bench.upstream)
    talk(bench, "llama3.2", turns=1)
    assert "window.assumed" not in capsys.readouterr().out


def test_a_larger_context_is_noticed(bench: Bench) -> None:
    """The operator gives the model more, which the next load brings."""
    ollama = ForgetfulOllama(100 * CONTEXT)
    ollama.serve(bench.upstream)
    assert "compacted" not in talk(bench, "llama3.2")
    assert sum(ollama.forgotten) == 0
