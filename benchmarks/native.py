"""Bills one long talk with each of two strategies, ``native`` and ``hybrid``, through a whole Tidemark.

``make bench-native`` runs it, before a fake of Anthropic's API that checks thinking,
writes summaries and keeps a prompt cache by its marks. The client marks ``system`` and its newest message. Prices are
relative to a token of input: 1.25 for one written to the cache, 0.1 for one read from it, 5 for one of output. Four
bytes are a token. Nothing is timed; figures differ by a percent from run to run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.providers.anthropic_compaction import CompactingAnthropic
from tests.support.scripted import Answer, Received, ScriptedUpstream, whole
from tests.support.serving import Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.telemetry.logging import configure

TURNS, WINDOW = 60, 20_000
WRITE, READ, OUTPUT = 1.25, 0.1, 5.0
SUMMARY_WORDS = 350
CONFIG = """
model_list:
  - model_name: talker
    litellm_params: {{model: openai/claude-opus-5-5, api_base: "{url}/v1"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 1000}}
compaction: {{defaults: {{strategy: {strategy}, prepare: 0}}}}
"""
Json = dict[str, Any]


def says(body: Json) -> list[Json]:
    """Think, and answer at some length."""
    number = len(body["messages"])
    return [
        {"type": "thinking", "thinking": words(f"I weigh point {number}:", 100)},
        {"type": "text", "text": words(f"Answer {number}:", 150)},
    ]


def words(start: str, count: int) -> str:
    """A text of so many words."""
    return f"{start} " + " ".join(f"word{place % 97}" for place in range(count))


@dataclass
class Billed:
    """The API, and what it bills for."""

    api: CompactingAnthropic = field(default_factory=lambda: CompactingAnthropic(say=says, words=SUMMARY_WORDS))
    summaries: int = 0
    summary_cost: float = 0.0
    """Of the requests for summaries, in tokens of input."""
    output: int = 0
    plain: int = 0
    """Tokens that went in beside the Messages API."""
    thoughts: int = 0
    """Answers that went out with their thinking."""

    def __call__(self, received: Received) -> Answer:
        """Answer a request, and bill it."""
        before = self.cost
        if received.path.endswith("/chat/completions"):
            summary = words("The points were agreed upon.", SUMMARY_WORDS)
            self.plain += len(received.body) // 4
            self.output += len(summary) // 4
            self._add_summary(before)
            return whole(summary)
        answer = self.api(received)
        self.output += sum(len(piece) for piece in answer.pieces if isinstance(piece, bytes)) // 4
        if "compaction" in received.json:
            self._add_summary(before)
        else:
            self.thoughts += received.body.count(b'"type":"thinking"') + received.body.count(b'"type": "thinking"')
        return answer

    @property
    def cost(self) -> float:
        """Everything, in tokens of input."""
        cache = self.api.cache
        return cache.plain + self.plain + WRITE * cache.written + READ * cache.read + OUTPUT * self.output

    def _add_summary(self, before: float) -> None:
        self.summaries += 1
        self.summary_cost += self.cost - before


def play(strategy: str, turns: int) -> Billed:
    """Play the talk with one strategy."""
    billed = Billed()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        upstream = ScriptedUpstream()
        upstream.script = billed
        served = stack.enter_context(Serving(upstream))
        store = stack.enter_context(EmbeddedValkey(folder / "valkey"))
        path = folder / "tidemark.yaml"
        path.write_text(CONFIG.format(url=served.url, window=WINDOW, strategy=strategy))
        app = create_app(
            load(path, {"TIDEMARK_DATA_DIR": name}), store_url=store.url, secret=b"a benchmark's", warn=print
        )
        server = stack.enter_context(Serving(app))
        http = stack.enter_context(httpx.Client(base_url=server.url, timeout=60))
        talk(http, turns)
    return billed


def talk(http: httpx.Client, turns: int) -> None:
    """Ask, keep every answer, and mark the newest message for the cache."""
    mark = {"cache_control": {"type": "ephemeral"}}
    messages: list[Json] = []
    system = [{"type": "text", "text": words("Be brief.", 900), **mark}]
    for number in range(turns):
        block = {"type": "text", "text": words(f"Point {number}:", 200)}
        history = [*messages, {"role": "user", "content": [{**block, **mark}]}]
        body = {"model": "talker", "max_tokens": 500, "system": system, "messages": history}
        answer = http.post(
            "/v1/messages", content=json.dumps(body).encode(), headers={"authorization": "Bearer benchmark"}
        )
        answer.raise_for_status()
        messages += [{"role": "user", "content": [block]}, {"role": "assistant", "content": answer.json()["content"]}]


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    configure("error")
    bills = {strategy: play(strategy, options.turns) for strategy in ("hybrid", "native")}
    print("strategy  summaries  plain    written  read       output   share read  cost     of summaries  thinking sent")
    for strategy, billed in bills.items():
        cache = billed.api.cache
        plain, output = cache.plain + billed.plain, billed.output
        share = cache.read / (plain + cache.written + cache.read)
        print(
            f"{strategy:9} {billed.summaries:<10} {plain:<8,} {cache.written:<8,} {cache.read:<10,} {output:<8,} "
            f"{share:<11.0%} {billed.cost:<8,.0f} {billed.summary_cost:<13,.0f} {billed.thoughts:,}"
        )
        assert not billed.api.refusals, billed.api.refusals[0]
    print(f"native costs {bills['native'].cost / bills['hybrid'].cost:.2f} times hybrid")


if __name__ == "__main__":
    main()
