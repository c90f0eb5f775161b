"""A Tidemark whose clients have keys of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client, benched
from tests.support.fresh_stores import fresh_store

KEYED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}", api_key: sk-configured}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
  - model_name: large
    litellm_params: {{model: openai/scripted-large, api_base: "{base}", api_key: sk-configured}}
  - model_name: small-vision
    litellm_params: {{model: openai/scripted-vision, api_base: "{base}", api_key: sk-configured}}
auth: {{mode: keys}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300{more}}}
"""


@dataclass
class Keyed:
    """A bench upon a store of its own, and a Tidemark of it that asks for keys."""

    bench: Bench
    operator: Client

    def create(self, name: str = "app", **fields: Any) -> dict[str, Any]:
        """Make a key."""
        answer = self.ask("POST", "", name=name, **fields)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def ask(self, method: str, path: str, **fields: Any) -> httpx.Response:
        """Ask as the operator."""
        content = json.dumps(fields).encode() if fields else b""
        return self.operator.http.request(method, "/tidemark/keys" + path, content=content)

    def client(self, key: str) -> Client:
        """A client of the same Tidemark with a key."""
        return Client(self.operator.http, key)

    def sent(self) -> list[dict[str, str]]:
        """The header lines of what the upstream got."""
        return [dict(received.headers) for received in self.bench.upstream.received]


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Keyed]:
    """Upon a store of the test's own: the keys are everybody's."""
    with fresh_store() as store, benched(store.url, tmp_path) as bench:
        yield Keyed(bench, bench.client("", config=KEYED))
