"""Sends recorded sessions through a whole Tidemark, and bills them before a provider with a prompt cache.

``make bench-bill`` runs it with a small set of our own making. ``--recorded FILE`` reads usage as it was recorded: for
each session its turns as ``[turn, fresh, output, cached, written, ...]``, in tokens. The texts are made to these sizes:
each turn is a call and a printed result, and now and then a request of the user. A later call uses values that earlier
results printed, mostly of the newest ones. Such a value survives if it stands in the request that the model gets for
that turn.

The provider's cache has the messages of the request before, if nothing before them changed. It bills them as read, and
the rest as written. Every session is billed in three ways: as recorded sizes without a proxy, through Tidemark, and
with the newest messages alone. The figures are sums of tokens and prices, so they are the same on every machine.

``--traces`` bills sessions that have text (``benchmarks/traces/``) in the Messages dialect. Then a value is counted
apart if it stands only in a message whose handle the request shows. A row is a name in ``POLICIES`` and its policy.
``--peers headroom cliff-40k`` installs other proxies for the run, and sends them the same requests.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from benchmarks.billed_peers import PEERS, BilledPeer, PeerUnavailable, install, running_peer
from benchmarks.billed_sessions import Need, Session, own_sessions, session_of, session_of_trace, sessions_in
from benchmarks.traces.scenarios import SCENARIOS
from benchmarks.traces.sessions import trace_of
from tests.support.scripted import Answer, Received, ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.core.money import BilledTokens, ModelPrice, Rates
from tidemark.core.recall.passage import HANDLE_DIGITS, HANDLE_MARK
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.tokens import LocalTokenCounter

MODEL = "gpt-4o"
"""The model whose tokens are counted."""
PRICE = ModelPrice(Rates(1e-6, 5e-6, 1e-7, 1.25e-6))
"""Claude Haiku 4.5's, in USD for each token."""
LEAST_CACHED = 1024
"""A shorter prefix is not cached. Source: Anthropic's page on prompt caching, for most models."""
WINDOW = 1_000_000
NOTHING_BILLED = BilledTokens()
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
PEERS_MODELS = {"chat": "gpt-4o", "messages": "claude-haiku-4-5"}
"""Names that other proxies know."""
HANDLE = re.compile(rf"\b{HANDLE_MARK}[0-9a-f]{{{HANDLE_DIGITS}}}\b")
STATES = ("there", "handle", "gone")
"""What becomes of a value. The request has it, or shows the handle of a message that has it, or neither."""
OLD_TURNS = 11
"""A value that stood so many turns ago is an old one."""
CONFIG = """
model_list:
  - model_name: billed
    litellm_params: {{model: openai/gpt-4o, api_base: "{url}/v1"}}
    model_info:
      max_input_tokens: {window}
      max_output_tokens: 32000
      input_cost_per_token: {rates.input:.9f}
      output_cost_per_token: {rates.output:.9f}
      cache_read_input_token_cost: {rates.cache_read:.9f}
      cache_creation_input_token_cost: {rates.cache_write:.9f}
compaction: {{defaults: {policy}}}
"""
POLICIES: Mapping[str, str] = {
    "share": "{strategy: extractive}",
    "100k": "{strategy: extractive, threshold: 100000, target: 0.25, retention_ratio: 0.15}",
    "40k": "{strategy: extractive, threshold: 40000, target: 0.25, retention_ratio: 0.15}",
    "price": "{strategy: extractive, threshold: price}",
    "handles": "{strategy: extractive, threshold: price, recall: {tool: true}}",
    "60k": "{strategy: extractive, threshold: 60000, target: 0.6, retention_ratio: 0.1}",
    "60k handles": "{strategy: extractive, threshold: 60000, target: 0.6, retention_ratio: 0.1, recall: {tool: true}}",
    "60k masks": "{strategy: extractive, threshold: 60000, target: 0.6, retention_ratio: 0.1, mask_results: true,"
    " recall: {tool: true}}",
    "shadow": "{strategy: extractive, threshold: price, mode: shadow}",
}


@cache
def _counter() -> LocalTokenCounter:
    return LocalTokenCounter()


@cache
def _tokens(text: str) -> int:
    """Count a text; the same text is counted once."""
    return _counter().count_text(text, MODEL)


@dataclass
class Bill:
    """What one session cost, and what it lost."""

    usd: float = 0.0
    tokens: BilledTokens = NOTHING_BILLED
    compactions: int = 0
    """A peer's are its requests whose beginning is not the request before."""
    changes: int = 0
    needs: list[tuple[Need, str]] = field(default_factory=list)
    """The values, each with what became of it, of ``STATES``."""
    gain: Mapping[str, Any] = field(default_factory=dict)
    """What Tidemark itself says that it cost."""
    _before: Sequence[str] = ()

    def send(self, texts: Sequence[str], output: int, needs: Sequence[Need]) -> BilledTokens:
        """Bill a request by the messages that the provider got, and return its tokens."""
        same = 0
        while same < min(len(texts), len(self._before)) and texts[same] == self._before[same]:
            same += 1
        self.changes += same < len(self._before)
        cached = sum(map(_tokens, texts[:same]))
        cached = cached if cached >= LEAST_CACHED else 0
        total = sum(map(_tokens, texts))
        turn = BilledTokens(0, cached, total - cached, output)
        self.usd += PRICE.usd(turn)
        mine = self.tokens
        self.tokens = BilledTokens(0, mine.cached + cached, mine.cache_writes + total - cached, mine.output + output)
        self._before = texts
        handles = {handle for text in texts for handle in HANDLE.findall(text)}
        for need in needs:
            there = any(json.dumps(need.value)[1:-1] in text for text in texts)
            self.needs.append((need, "there" if there else "handle" if need.handles & handles else "gone"))
        return turn

    def share(self, state: str, first: int = 1, last: int = WINDOW) -> float:
        """Return the share of values of some ages of which something became."""
        states = [became for need, became in self.needs if first <= need.age <= last]
        return states.count(state) / max(len(states), 1)


@dataclass
class Provider:
    """A provider that answers with the session's next reply, and bills what it gets."""

    bill: Bill = field(default_factory=Bill)
    reply: dict[str, Any] = field(default_factory=dict)
    needs: Sequence[Need] = ()

    def answer(self, request: Received) -> Answer:
        """Answer as the session goes on."""
        turn = self.bill.send(texts_in(request.json), _tokens(json.dumps(self.reply)), self.needs)
        if request.dialect == "messages":
            input_tokens = {"cache_read_input_tokens": turn.cached, "cache_creation_input_tokens": turn.cache_writes}
            usage: dict[str, Any] = {"input_tokens": 0, "output_tokens": turn.output, **input_tokens}
            body = {"id": "msg_1", "type": "message", **self.reply, "model": "billed", "stop_sequence": None}
            calls = any(block["type"] == "tool_use" for block in self.reply["content"])
            body |= {"stop_reason": "tool_use" if calls else "end_turn", "usage": usage}
            return Answer([json.dumps(body).encode()])
        details = {"cached_tokens": turn.cached, "cache_write_tokens": turn.cache_writes}
        usage = {"prompt_tokens": turn.input, "completion_tokens": turn.output, "prompt_tokens_details": details}
        choice = {"index": 0, "message": self.reply, "finish_reason": "tool_calls"}
        body = {"id": "1", "object": "chat.completion", "model": "billed", "choices": [choice], "usage": usage}
        return Answer([json.dumps(body).encode()])


def texts_in(body: Mapping[str, Any]) -> list[str]:
    """Return what a request holds, part by part as a cache compares it: fields, then messages, without cache marks."""
    fields = {name: body[name] for name in ("tools", "system") if name in body}
    parts = [*([fields] if fields else []), *body["messages"]]
    return [json.dumps(_without_marks(part), sort_keys=True) for part in parts]


def _without_marks(value: Any) -> Any:
    """Return a value without cache marks, and a content of one text as this text."""
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {name: _without_marks(member) for name, member in value.items() if name != "cache_control"}
    match members:
        case {"content": [{"type": "text", "text": str(text), **others}]} if not others:
            return {**members, "content": text}
    return members


@contextmanager
def running_proxy(policy: str) -> Iterator[tuple[httpx.Client, Serving, Provider]]:
    """Yield a Tidemark whose model has a large window and a price."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(EmbeddedValkey(folder / "store"))
        provider, upstream = Provider(), ScriptedUpstream()
        upstream.script = provider.answer
        served = stack.enter_context(Serving(upstream))
        path = folder / "tidemark.yaml"
        path.write_text(CONFIG.format(url=served.url, window=WINDOW, rates=PRICE.rates, policy=policy))
        settings = load(path, {"TIDEMARK_DATA_DIR": str(folder)})
        app = create_app(settings, store_url=store.url, secret=b"a benchmark's", warn=print)
        server = stack.enter_context(Serving(app))
        yield stack.enter_context(httpx.Client(base_url=server.url, timeout=60, verify=NO_TLS)), server, provider


def through_tidemark(session: Session, policy: str) -> Bill:
    """Send a session through Tidemark."""
    with running_proxy(policy) as (client, server, provider):
        for turn, (reply, needs) in enumerate(zip(session.replies, session.needs, strict=True)):
            provider.reply, provider.needs = reply, needs
            headers = {"authorization": f"Bearer {session.name}"}
            got = client.post(PATHS[session.dialect], json=session.request(turn), headers=headers)
            got.raise_for_status()
            server.settle()
            provider.bill.compactions += got.headers.get("x-tidemark-action") in ("compacted", "forced")
        provider.bill.gain = client.get("/tidemark/gain").raise_for_status().json()
    return provider.bill


def through_peer(session: Session, url: str, upstream: ScriptedUpstream) -> Bill:
    """Send a session through another proxy.

    :param url: where it listens
    :param upstream: what it forwards to
    :raises httpx.HTTPError: it refused a request, or did not answer in time
    """
    provider = Provider()
    upstream.script = provider.answer
    headers = {"authorization": f"Bearer {session.name}", "x-api-key": session.name, "anthropic-version": "2023-06-01"}
    with httpx.Client(base_url=url, timeout=60, verify=NO_TLS) as client:
        for turn, (reply, needs) in enumerate(zip(session.replies, session.needs, strict=True)):
            provider.reply, provider.needs = reply, needs
            body = {**session.request(turn), "model": PEERS_MODELS[session.dialect]}
            client.post(PATHS[session.dialect], json=body, headers=headers).raise_for_status()
    provider.bill.compactions = provider.bill.changes
    return provider.bill


def bills_of_peers(
    peers: Sequence[BilledPeer], sessions: Sequence[Session]
) -> Iterator[tuple[BilledPeer, Sequence[Bill] | str]]:
    """Install and start each peer, and yield its bills, or in words why there are none."""
    with tempfile.TemporaryDirectory() as name:
        environments: dict[str, Path] = {}
        for peer in peers:
            folder, upstream = Path(name) / peer.name, ScriptedUpstream()
            try:
                if peer.requirement not in environments:
                    environments[peer.requirement] = install(peer.requirement, folder / "environment")
                programs = environments[peer.requirement]
                with Serving(upstream) as served, running_peer(peer, programs, served.url, folder / "data") as url:
                    yield peer, [through_peer(session, url, upstream) for session in sessions]
            except PeerUnavailable as error:
                yield peer, f"left out, {error}"
            except httpx.HTTPError as error:
                yield peer, f"left out, it failed: {error}"


def without_proxy(session: Session, newest: int = 0) -> Bill:
    """Bill a session as its client sends it.

    :param newest: forward the head and the newest messages only, cut to a quarter whenever they exceed so many tokens
    """
    texts = texts_in({**session.fields, "messages": session.messages})
    more = len(texts) - len(session.messages)  # the fields, before the messages
    results = [False] * more + list(map(_is_result, session.messages))
    bill, begins = Bill(), 2
    for count, reply, needs in zip(session.ends, session.replies, session.needs, strict=True):
        end = more + count
        if newest and sum(map(_tokens, texts[begins:end])) > newest:
            bill.compactions += 1
            while begins < end and (sum(map(_tokens, texts[begins:end])) > newest // 4 or results[begins]):
                begins += 1
        bill.send([*texts[:2], *texts[begins:end]], _tokens(json.dumps(reply)), needs)
    return bill


def _is_result(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    return message["role"] == "tool" or (isinstance(content, list) and content[0]["type"] == "tool_result")


def main() -> None:
    """Print the bill of each policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recorded", type=Path, help="a file of recorded usage")
    parser.add_argument("--traces", action="store_true", help="sessions that have text, in the Messages dialect")
    parser.add_argument("--policies", help=f"of {', '.join(POLICIES)}")
    parser.add_argument("--turns", type=int, default=0, help="the most turns of each session; 0: all")
    parser.add_argument("--sessions", type=int, default=0, help="the most sessions; 0: all")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="install these proxies for the run; none named: all")
    options = parser.parse_args()
    billed_sessions = _chosen_sessions(options)
    whole_bills = [without_proxy(session) for session in billed_sessions]
    _show("no proxy", whole_bills, whole_bills)
    _show("newest, 40k", [without_proxy(session, 40_000) for session in billed_sessions], whole_bills)
    for name in (options.policies or ("price" if options.traces else "share,40k,price")).split(","):
        _show(name, [through_tidemark(session, POLICIES[name]) for session in billed_sessions], whole_bills)
    for peer, bills in bills_of_peers(peers_of(options.peers), billed_sessions):
        print(f"{peer.title}: {bills}") if isinstance(bills, str) else _show(peer.title, bills, whole_bills)


def peers_of(names: Sequence[str] | None) -> Sequence[BilledPeer]:
    """Return the peers of the option: none without it, all if it names none."""
    return [] if names is None else [PEERS[name] for name in names or PEERS]


def _chosen_sessions(options: argparse.Namespace) -> Sequence[Session]:
    count = options.sessions or None
    if options.traces:
        return [session_of_trace(trace_of(scenario.name, options.turns)) for scenario in SCENARIOS[:count]]
    sessions = sessions_in(options.recorded) if options.recorded else own_sessions()
    return [session_of(name, turns[: options.turns or None]) for name, turns in list(sessions.items())[:count]]


def _show(name: str, bills: Sequence[Bill], whole_bills: Sequence[Bill]) -> None:
    usd, before = (sum(bill.usd for bill in some) for some in (bills, whole_bills))
    worst = max(bill.usd / other.usd for bill, other in zip(bills, whole_bills, strict=True))
    cached = sum(bill.tokens.cached for bill in bills) / sum(bill.tokens.input for bill in bills)
    every = Bill(needs=[need for bill in bills for need in bill.needs])
    values = f"values there {every.share('there'):6.1%}"
    if any(need.handles for need, _ in every.needs):
        values += f", by handle {every.share('handle'):.1%}, gone {every.share('gone'):.1%}; "
        values += f"of old ones {' / '.join(f'{every.share(state, OLD_TURNS):.1%}' for state in STATES)}"
    compactions = sum(bill.compactions for bill in bills)
    print(
        f"{name:>12}: ${usd:8.4f}  saved {1 - usd / before:6.1%}  cached {cached:6.1%}  "
        f"compactions {compactions:4d}  {values}  worst session {worst:.2f} times",
        flush=True,
    )
    for words, key in (("paid", "paid_usd"), ("uncompacted", "uncompacted_usd"), ("forecast", "forecast_usd")):
        if amounts := [bill.gain[key] for bill in bills if bill.gain.get(key)]:
            print(f"{'':>14}by Tidemark's own bill, {words}: ${sum(amounts):.4f}")


if __name__ == "__main__":
    main()
