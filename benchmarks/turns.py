"""Counts summaries and unchanged messages of 24 turns in a window of 20,000 tokens, through a whole Tidemark.

``make bench-turns`` runs it, with a real server and a scripted upstream on one machine, without a network. A message is
unchanged when the next request sends it again, with the same bytes in the same place, as a prompt cache needs it.
Another proxy made 7 calls for such a conversation, and 1 of 8 messages stayed unchanged.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from tests.support.scripted import Answer, Received, ScriptedUpstream, says, whole
from tests.support.serving import Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.telemetry.logging import configure

TURNS, WINDOW = 24, 20_000
THINKING_SECONDS = 0.3
"""The pause between a reply and the next question, which is enough for a preparation."""
CONFIG = """
model_list:
  - model_name: scripted
    litellm_params: {{model: openai/scripted, api_base: "{url}/v1"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 1000}}
compaction: {{defaults: {{strategy: llm, prepare: {prepare}}}}}
"""
SUMMARY = "The points were gone through one after another, and each was agreed upon by both sides in turn. " * 8


@dataclass
class Upstream:
    """A scripted upstream that writes long answers, and summaries where a request asks for one."""

    requests: list[list[dict[str, Any]]] = field(default_factory=list)
    """The messages of each of the client's requests, as the upstream received them."""
    calls: int = 0

    def __call__(self, request: Received) -> Answer:
        """Answer one request."""
        if str(request.messages[0]["content"]).startswith("You summarize"):
            self.calls += 1
            return whole(SUMMARY)
        self.requests.append(request.messages)
        return says(words(f"Answer {len(self.requests)}:", 560))(request)


@dataclass(frozen=True)
class Outcome:
    """The totals of a conversation."""

    calls: int
    waits: int
    """The turns at which the client waited for a summary."""
    unchanged: int
    """The messages that the next request sent again unchanged and in the same place."""
    could: int
    """The messages that could have stayed unchanged: all but those of the last request."""
    worst: tuple[int, int]
    """The same two numbers for the turn with the smallest share."""

    @property
    def share(self) -> float:
        """Return the share of messages that stayed unchanged."""
        return self.unchanged / self.could


def words(lead: str, number: int) -> str:
    """Make a unique text of about so many tokens."""
    return lead + "".join(f" {lead[-4:-1]}{place % 97}" for place in range(number // 2))


def talk(prepare: float, thinking_seconds: float = THINKING_SECONDS) -> Outcome:
    """Run the conversation."""
    upstream = Upstream()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(EmbeddedValkey(Path(folder) / "store"))
        served = stack.enter_context(Serving(ScriptedUpstream(upstream)))
        path = Path(folder) / "tidemark.yaml"
        path.write_text(CONFIG.format(url=served.url, window=WINDOW, prepare=prepare))
        settings = load(path, {"TIDEMARK_DATA_DIR": folder})
        app = create_app(settings, store_url=store.url, secret=b"a benchmark's", warn=print)
        proxy = stack.enter_context(Serving(app))
        waits = _say_all(stack.enter_context(httpx.Client(base_url=proxy.url, timeout=60)), upstream, thinking_seconds)
    pairs = [(_count_kept(before, after), len(before)) for before, after in pairwise(upstream.requests)]
    worst = min(pairs, key=lambda pair: pair[0] / pair[1])
    return Outcome(
        upstream.calls, waits, sum(unchanged for unchanged, _ in pairs), sum(could for _, could in pairs), worst
    )


def _say_all(client: httpx.Client, upstream: Upstream, thinking_seconds: float) -> int:
    """Send all turns, and return how many of them waited for a summary."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a careful assistant."}]
    waits = 0
    for number in range(TURNS):
        messages.append({"role": "user", "content": words(f"Question {number}:", 200)})
        before = upstream.calls
        got = client.post("/v1/chat/completions", json={"model": "scripted", "messages": messages, "max_tokens": 1000})
        got.raise_for_status()
        waits += upstream.calls > before and got.headers["x-tidemark-action"] == "compacted"
        messages.append({"role": "assistant", "content": got.json()["choices"][0]["message"]["content"]})
        time.sleep(thinking_seconds)
    return waits


def _count_kept(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> int:
    """Count the equal messages at the beginning of two requests."""
    same = 0
    for first, second in zip(before, after, strict=False):
        if first != second:
            break
        same += 1
    return same


def main() -> None:
    """Print one line for each way of making summaries."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    configure("error")
    print(f"{TURNS} turns, window of {WINDOW:,} tokens")
    for name, prepare in (("made on demand", 1), ("prepared (the default)", 0.7)):
        done = talk(prepare)
        print(
            f"  {name:24} {done.calls} summarizer calls, {done.waits} waited for; "
            f"{done.unchanged} of {done.could} forwarded messages stay ({done.share:.0%}), "
            f"{done.worst[0]} of {done.worst[1]} on the worst turn"
        )


if __name__ == "__main__":
    main()
