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
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from benchmarks.traces.scenarios import SCENARIOS
from benchmarks.traces.sessions import Trace, trace_of
from tests.support.scripted import Answer, Received, ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.core.money import BilledTokens, ModelPrice, Rates
from tidemark.core.recall.passage import HANDLE_DIGITS, HANDLE_MARK, handle_of
from tidemark.dialects.messages.message import read_element
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
    "masks": "{strategy: extractive, threshold: 60000, target: 0.6, retention_ratio: 0.1, mask_results: true,"
    " recall: {tool: true}}",
    "shadow": "{strategy: extractive, threshold: price, mode: shadow}",
}
WORDS = "total order invoice cart price queue worker retry config handler token cache index commit branch metric error"
"""What the made texts say."""
USER_TURNS = 15
"""A request of the user comes about so often."""
VALUES_EACH = 4
"""The values that a result prints, for later calls."""
NEAR = 0.25
"""The chance that a call uses a value of the newest result. Of the rest, as many use the one before it."""
FAR_SHARE = 0.05
"""So many calls use a value of any earlier result."""


@dataclass(frozen=True)
class Turn:
    """The sizes of one recorded turn, in tokens."""

    context: int
    """All input."""
    output: int


@dataclass(frozen=True)
class Need:
    """A value that a reply uses."""

    value: str
    handles: frozenset[str] = frozenset()
    """The handles of the earlier messages that hold it."""
    age: int = 1
    """How many turns ago it stood last."""


@dataclass
class Session:
    """One chain of messages, and which values each turn needs."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    """What a request has beside its messages; it comes before them."""
    dialect: str = "chat"
    messages: list[dict[str, Any]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """The number of messages of each request."""
    replies: list[dict[str, Any]] = field(default_factory=list)
    needs: list[Sequence[Need]] = field(default_factory=list)
    """The values that each turn's reply uses."""

    def request(self, turn: int) -> dict[str, Any]:
        """Return the body of a turn's request; in the Messages dialect its newest message is marked for the cache."""
        messages = self.messages[: self.ends[turn]]
        if self.dialect == "messages":
            content = messages[-1]["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            marked = [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
            messages = [*messages[:-1], {**messages[-1], "content": marked}]
        return {"model": "billed", **self.fields, "messages": messages}


@cache
def _words() -> Sequence[str]:
    return WORDS.split()


@cache
def _counter() -> LocalTokenCounter:
    return LocalTokenCounter()


@cache
def _tokens(text: str) -> int:
    """Count a text; the same text is counted once."""
    return _counter().count_text(text, MODEL)


def _text(chance: random.Random, tokens: int, values: Sequence[str], number: int) -> str:
    """Make what a program prints, of about so many tokens."""
    lines, size = [], 0
    for place, value in enumerate(values):
        lines.append(f"{chance.choice(_words())}_{number}_{place} = {value}")
        size += 14
    while size < tokens:
        words = [chance.choice(_words()) for _ in range(chance.randrange(5, 14))]
        lines.append(f"{chance.randrange(1, 900):>4}  {words[0]}.{words[1]}({', '.join(words[2:])})")
        size += 2 * len(words) + 3
    chance.shuffle(lines)
    return "\n".join(lines)


def session_of(name: str, turns: Sequence[Turn]) -> Session:
    """Make the texts of a session to its recorded sizes."""
    chance, session = random.Random(name), Session(name)
    head = max(turns[0].context - 400, 200)
    session.messages.append({"role": "system", "content": _text(chance, head, (), 0)})
    session.messages.append(
        {"role": "user", "content": f"Find out why {name} fails, and mend it. " + _question(chance)}
    )
    results: list[Sequence[str]] = []
    for number, turn in enumerate(turns):
        session.ends.append(len(session.messages))
        needed = _needed(chance, results)
        session.needs.append([Need(value) for value in needed])
        call = {"name": "run", "arguments": json.dumps({"command": f"inspect {' '.join(needed)} --step {number}"})}
        text = _text(chance, max(turn.output - 60, 0), (), number) if turn.output > 100 else None
        reply: dict[str, Any] = {"role": "assistant", "content": text}
        reply["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": call}]
        session.replies.append(reply)
        growth = turns[number + 1].context - turn.context if number + 1 < len(turns) else 0
        values = [f"{chance.choice(_words())[:3].upper()}-{chance.randrange(10**5, 10**6)}" for _ in range(VALUES_EACH)]
        results.append(values)
        result = _text(chance, max(growth - turn.output, 40), values, number)
        session.messages += [reply, {"role": "tool", "tool_call_id": f"call_{number}", "content": result}]
        if chance.random() < 1 / USER_TURNS:
            session.messages.append({"role": "user", "content": _question(chance)})
    return session


def _question(chance: random.Random) -> str:
    return f"Now look at the {chance.choice(_words())} of the {chance.choice(_words())}, and keep its tests green."


def _needed(chance: random.Random, results: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Draw the values of earlier results that a call uses."""
    if not results:
        return ()
    if chance.random() < FAR_SHARE:
        return (chance.choice(chance.choice(results)),)
    back = 1
    while chance.random() > NEAR and back < len(results):
        back += 1
    return (chance.choice(results[-back]),)


@dataclass
class Bill:
    """What one session cost, and what it lost."""

    usd: float = 0.0
    tokens: BilledTokens = NOTHING_BILLED
    compactions: int = 0
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


def session_of_trace(trace: Trace) -> Session:
    """Return a made session with text as one that can be billed."""
    session = Session(trace.name, {"max_tokens": 4096, "system": trace.system, "tools": trace.tools}, "messages")
    session.messages, session.ends, session.replies = trace.messages, trace.ends, trace.replies
    session.needs = [[] for _ in trace.ends]
    parts = [read_element(json.dumps(message).encode(), 0) for message in trace.messages]
    for use in trace.uses:
        value = json.dumps(use.value)[1:-1].encode()
        before = [part for some in parts[: trace.ends[use.turn]] for part in some]
        handles = frozenset(handle_of(part) for part in before if value in part.raw)
        session.needs[use.turn] = [*session.needs[use.turn], Need(use.value, handles, use.age)]
    return session


def sessions_in(path: Path) -> Mapping[str, Sequence[Turn]]:
    """Read recorded usage; a chain ends if its client compacts, and a new one begins."""
    chains: dict[str, list[Turn]] = {}
    for name, session in json.loads(path.read_text()).items():
        number, before = 0, 0
        for _, fresh, output, cached, writes, *_ in session["points"]:
            context = fresh + cached + writes
            if context < before // 2:
                number += 1
            before = context
            chains.setdefault(f"{name[:6]}-{number}", []).append(Turn(context, output))
    return {name: turns for name, turns in chains.items() if len(turns) > 1}


def own_sessions() -> Mapping[str, Sequence[Turn]]:
    """Return sessions of our own making: a short one, a usual one, and one with large results."""
    sessions = {}
    for name, count, mean in (("short", 12, 900), ("usual", 120, 900), ("large", 90, 3000)):
        chance, context, turns = random.Random(name), 12_000, []
        for _ in range(count):
            output = max(40, int(chance.lognormvariate(5, 0.8)))
            turns.append(Turn(context, output))
            context += output + max(60, int(mean * chance.lognormvariate(-0.5, 1)))
        sessions[name] = turns
    return sessions


def main() -> None:
    """Print the bill of each policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recorded", type=Path, help="a file of recorded usage")
    parser.add_argument("--traces", action="store_true", help="sessions that have text, in the Messages dialect")
    parser.add_argument("--policies", help=f"of {', '.join(POLICIES)}")
    parser.add_argument("--turns", type=int, default=0, help="the most turns of each session; 0: all")
    parser.add_argument("--sessions", type=int, default=0, help="the most sessions; 0: all")
    options = parser.parse_args()
    billed_sessions = _chosen_sessions(options)
    whole_bills = [without_proxy(session) for session in billed_sessions]
    _show("no proxy", whole_bills, whole_bills)
    _show("newest, 40k", [without_proxy(session, 40_000) for session in billed_sessions], whole_bills)
    for name in (options.policies or ("price" if options.traces else "share,40k,price")).split(","):
        _show(name, [through_tidemark(session, POLICIES[name]) for session in billed_sessions], whole_bills)


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
