"""Bills sessions of a client that sets no cache marks, with and without those that Tidemark sets.

``python -m benchmarks.marks`` runs it with the sessions of ``bill.py``. The client speaks Anthropic's Messages API. The
provider reads and writes what marks ask for, with the least size, the lookback and the life of the model's cache, at
the prices of Haiku 4.5. A turn of the loop comes after some seconds, and a request of the user after ten minutes, when
the cache is gone. A client that has its whole request cached (``cache_control`` beside the messages) is the best that
marks can do.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.bill import PRICE, WINDOW
from benchmarks.billed_sessions import Session, own_sessions, session_of, sessions_in
from tests.providers.anthropic_messages import tell
from tests.providers.prompt_cache import PromptCache
from tests.support.scripted import Answer, Received, ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.core.money import BilledTokens
from tidemark.store.embedded.server import EmbeddedValkey

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: billed
    litellm_params: {{model: anthropic/{model}, api_base: "{url}"}}
    model_info:
      max_input_tokens: {window}
      max_output_tokens: 32000
      input_cost_per_token: {rates.input:.9f}
      output_cost_per_token: {rates.output:.9f}
      cache_read_input_token_cost: {rates.cache_read:.9f}
      cache_creation_input_token_cost: {rates.cache_write:.9f}
compaction: {{defaults: {{strategy: extractive, threshold: {threshold}, retention_ratio: 0.15, target: 0.25,
  cache_marks: "{marks}"}}}}
"""
MODEL = "claude-sonnet-5"
"""It caches prefixes from 1,024 tokens on, as most models do; Haiku 4.5 none below 4,096."""
TURN_SECONDS, USER_SECONDS = 20.0, 600.0
AUTOMATIC: Json = {"cache_control": {"type": "ephemeral"}}


@dataclass
class Provider:
    """Anthropic's cache, and what it bills."""

    cache: PromptCache = field(default_factory=PromptCache)
    seconds: float = 0.0
    output: int = 0
    usd: float = 0.0

    def __post_init__(self) -> None:
        self.cache.clock = lambda: self.seconds

    def bill(self, body: Json) -> Json:
        """Bill a request, and return its counts."""
        usage = self.cache.usage(body)
        cached, writes = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        self.usd += PRICE.usd(BilledTokens(usage["input_tokens"], cached, writes, self.output))
        return usage

    def answer(self, request: Received) -> Answer:
        """Answer anything: the client sends its own history."""
        return tell([{"type": "text", "text": "Fine."}], request, usage=self.bill(request.json))


def requests_of(session: Session) -> Sequence[tuple[Json, int, float]]:
    """Return each request of a session, the tokens of its answer, and how long after the one before it comes."""
    system, *messages = [_block_message(message) for message in session.messages]
    requests = []
    for end, reply in zip(session.ends, session.replies, strict=True):
        pause = USER_SECONDS if session.messages[end - 1]["role"] == "user" else TURN_SECONDS
        body = {"model": "billed", "max_tokens": 1000, "system": system["content"], "messages": messages[: end - 1]}
        requests.append((body, len(json.dumps(reply)) // 4, pause))
    return requests


def _block_message(message: Json) -> Json:
    """Return a message as the Messages API has it."""
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [result]}
    if "tool_calls" not in message:
        return {"role": message["role"], "content": message["content"]}
    texts = [{"type": "text", "text": message["content"]}] if message["content"] else []
    calls = [
        {"type": "tool_use", "id": call["id"], "name": "run", "input": json.loads(call["function"]["arguments"])}
        for call in message["tool_calls"]
    ]
    return {"role": "assistant", "content": [*texts, *calls]}


def without_proxy(session: Session, model: str, members: Mapping[str, Any]) -> float:
    """Return what a session costs as its client sends it, in USD."""
    provider = Provider()
    for body, output, pause in requests_of(session):
        provider.seconds, provider.output = provider.seconds + pause, output
        provider.bill({**body, **members, "model": model})
    return provider.usd


@dataclass(frozen=True)
class Policy:
    """How Tidemark compacts and marks."""

    threshold: str
    marks: str
    model: str


def through_tidemark(
    session: Session, policy: Policy, members: Mapping[str, Any], later: Mapping[str, Any] | None = None
) -> float:
    """Return what a session costs through Tidemark, in USD.

    :param later: members of each request after the first compaction, if they are others
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(EmbeddedValkey(folder / "store"))
        provider, upstream = Provider(), ScriptedUpstream()
        upstream.script = provider.answer
        served = stack.enter_context(Serving(upstream))
        path = folder / "tidemark.yaml"
        path.write_text(CONFIG.format(url=served.url, window=WINDOW, rates=PRICE.rates, **asdict(policy)))
        app = create_app(
            load(path, {"TIDEMARK_DATA_DIR": str(folder)}), store_url=store.url, secret=b"a benchmark's", warn=print
        )
        server = stack.enter_context(Serving(app))
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=60, verify=NO_TLS))
        for body, output, pause in requests_of(session):
            provider.seconds, provider.output = provider.seconds + pause, output
            answer = client.post("/v1/messages", json={**body, **members}, headers={"x-api-key": session.name})
            answer.raise_for_status()
            if later is not None and answer.headers["x-tidemark-action"] == "compacted":
                members = later
            server.settle()
        return provider.usd


def main() -> None:
    """Print what the sessions cost in each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recorded", type=Path, help="a file of recorded usage")
    parser.add_argument("--threshold", default="40000", help="tokens, or price")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--turns", type=int, default=0, help="the most turns of each session; 0: all")
    parser.add_argument("--sessions", type=int, default=0, help="the most sessions; 0: all")
    options = parser.parse_args()
    every = sessions_in(options.recorded) if options.recorded else own_sessions()
    chosen = list(every.items())[: options.sessions or None]
    sessions = [session_of(name, turns[: options.turns or None]) for name, turns in chosen]
    model = options.model
    plain, marking = (Policy(options.threshold, marks, model) for marks in ("off", "on"))
    ways: Mapping[str, Callable[[Session], float]] = {
        "no proxy, no marks": lambda session: without_proxy(session, model, {}),
        "no proxy, all cached": lambda session: without_proxy(session, model, AUTOMATIC),
        "Tidemark, no marks": lambda session: through_tidemark(session, plain, {}),
        "Tidemark's marks": lambda session: through_tidemark(session, marking, {}),
        "and the newest message": lambda session: through_tidemark(session, marking, {}, AUTOMATIC),
        "Tidemark, all cached": lambda session: through_tidemark(session, marking, AUTOMATIC),
    }
    for name, cost in ways.items():
        amounts = [cost(session) for session in sessions]
        print(f"{name:>22}: ${sum(amounts):8.4f}  {'  '.join(f'{amount:.4f}' for amount in amounts)}", flush=True)


if __name__ == "__main__":
    main()
