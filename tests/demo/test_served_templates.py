"""llama.cpp with strict chat templates: a talk goes on past its window, and the model gets the summary."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest

from tests.request.conftest import Client, benched
from tests.request.talk import Said, assistant, long, system, user
from tests.support.clusters import free_ports
from tests.support.serving import NO_TLS
from tests.support.strict_templates import ALTERNATING, DROPPING, FIRST_ONLY
from tidemark.demo import children, llama
from tidemark.store.embedded.server import EmbeddedValkey

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(600), pytest.mark.usefixtures("real_model")]
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/{model}, api_base: "http://127.0.0.1:{port}/v1"}}
    model_info: {{max_input_tokens: 900, max_output_tokens: 40}}
compaction:
  defaults: {{strategy: extractive, min_tokens: 200, retention_tokens: 150}}
"""
SERVE = """
import signal, sys, xllamacpp
signal.signal(signal.SIGTERM, signal.SIG_DFL)
settings = xllamacpp.CommonParams()
settings.model.path, settings.port, settings.chat_template = sys.argv[1], int(sys.argv[2]), sys.argv[3]
settings.hostnames, settings.n_ctx, settings.n_parallel, settings.use_jinja = ["127.0.0.1"], 2048, 1, True
settings.cpuparams.n_threads = 1
server = xllamacpp.Server(settings)
signal.pause()
"""


@pytest.mark.parametrize("template", [FIRST_ONLY, ALTERNATING, DROPPING], ids=["first only", "alternating", "dropping"])
def test_a_talk_goes_on_past_its_window(tmp_path: Path, template: str) -> None:
    """No request is refused; the tokens that the model reads are about those that Tidemark says it forwards."""
    (port,) = free_ports(1)
    command = [sys.executable, "-c", SERVE, str(llama.weights()), str(port), template]
    config = CONFIG.format(model=llama.MODEL, port=port).replace("{", "{{").replace("}", "}}")
    (tmp_path / "valkey").mkdir()
    with (
        children.child("The model's server", port, command, tmp_path / "llama.log") as model,
        EmbeddedValkey(tmp_path / "valkey") as valkey,
        benched(valkey.url, tmp_path) as bench,
    ):
        model.wait_ready(llama.HEALTH_PATH)
        with httpx.Client(base_url=bench.start(config=config), timeout=300, verify=NO_TLS) as http:
            actions = list(talked(Client(http, "key of the model")))
    assert "compacted" in actions
    assert actions[-1] in ("compacted", "reused")


def talked(client: Client) -> list[str]:
    """Hold a talk; return what was done at each turn."""
    messages: list[Said] = [system("Answer in a word.")]
    actions: list[str] = []
    for turn in range(10):
        messages.append(user(long(turn, 120)))
        body = {"model": "small", "messages": messages, "max_tokens": 8, "temperature": 0}
        got = client.post(body)
        assert got.status_code == 200, got.text
        forwarded, read = int(got.headers["x-tidemark-tokens-after"]), got.json()["usage"]["prompt_tokens"]
        assert forwarded <= read < 1.1 * forwarded  # a dropped summary would be missing here
        actions.append(got.headers["x-tidemark-action"])
        messages.append(assistant("Noted."))
    return actions
