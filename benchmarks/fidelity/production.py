"""Feeds the written talks to a whole Tidemark, turn by turn, and asks their questions at the end.

``python -m benchmarks.fidelity.production`` runs it, with a real server, its own store and a scripted upstream that
answers with the talk's own texts. The model's window is small, so that a talk is compacted several times with the
default marks. A fact is kept if it stands in the request that the upstream gets for its question: in a message word for
word, in a line of the summary, or in what is recalled. It is measured without recall, and with it as by
default; the talk's own messages recall as well, and leave less for the question.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.fidelity.cases import Case, Conversation, Fact
from benchmarks.fidelity.corpora import WrittenTalk, measured_talks
from benchmarks.fidelity.survival import surviving, text_of
from tests.support.scripted import Answer, Received, ScriptedUpstream, whole
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.core.conversation.summary import OPENING as SUMMARY_OPENING
from tidemark.core.recall.quotation import CLOSING
from tidemark.core.recall.quotation import OPENING as RECALL_OPENING
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.telemetry.logging import configure
from tidemark.tokens import LocalTokenCounter

WINDOW, SMALL_WINDOW = 8192, 3072
"""The window in tokens for private talks, and for the other kinds, whose talks are shorter."""
REPLY_SHARE = 8
"""A reply has at most this part of the window."""
LONG_KINDS = ("private", "meetings")
"""The kinds that are long enough to be compacted, and whose facts are asked for in words."""
RECALLS = ("0", "auto")
PARTS = ("kept", "in messages", "in summary", "only recall")
MODEL = "gpt-4o"
"""The model whose tokens are counted."""
CONFIG = """
model_list:
  - model_name: scripted
    litellm_params: {{model: openai/gpt-4o, api_base: "{url}/v1"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: {reply}}}
compaction: {{defaults: {{strategy: extractive, recall: {{max_tokens: {recall}}}}}}}
"""


@dataclass(frozen=True)
class Forwarded:
    """A request as the upstream got it, in parts."""

    messages: Sequence[str]
    summary: Sequence[str]
    """The lines of the summary."""
    recalled: Sequence[str]
    """The messages that are quoted before the question, and before those since the last compaction."""


@dataclass
class Sums:
    """What is known of one kind of talks."""

    facts: int = 0
    survivors: int = 0
    verbatim: int = 0
    """The kept facts that stand in a message which was not replaced."""
    summarized: int = 0
    """Those that stand in the summary, whether or not also in a message."""
    recalled: int = 0
    """Those that stand only in what is recalled."""
    compactions: int = 0
    """How often a summary covered more messages than before."""
    tokens: list[tuple[int, int, int]] = field(default_factory=list)
    """For each question: the tokens of the request, of its summary and of what is recalled."""
    lost: list[Fact] = field(default_factory=list)

    def add(self, case: Case, fact: Fact, forwarded: Forwarded) -> None:
        """Add a question's request."""
        self.facts += 1
        parts = (forwarded.messages, forwarded.summary, forwarded.recalled)
        verbatim, summarized, recalled = (bool(surviving(case, [fact], part)) for part in parts)
        self.verbatim += verbatim
        self.summarized += summarized
        self.recalled += recalled and not verbatim and not summarized
        if verbatim or summarized or recalled:
            self.survivors += 1
        else:
            self.lost.append(fact)

    def means(self) -> tuple[float, ...]:
        """Return the mean tokens of a request, of its summary and of what is recalled."""
        return tuple(sum(column) / len(self.tokens) for column in zip(*self.tokens, strict=True))


@dataclass
class Proxy:
    """A Tidemark with a scripted upstream behind it."""

    client: httpx.Client
    server: Serving
    counter: LocalTokenCounter = field(default_factory=LocalTokenCounter)
    reply: str = ""
    """What the upstream answers next."""
    received: list[dict[str, Any]] = field(default_factory=list)
    """The messages of the last request that the upstream got."""

    def answer(self, request: Received) -> Answer:
        """Answer as the talk goes on."""
        self.received = request.messages
        return whole(self.reply)

    def send(self, messages: Conversation, reply: str, key: str) -> httpx.Headers:
        """Send a request, and wait until nothing is prepared any more; return the headers of the answer."""
        self.reply = reply
        headers = {"authorization": f"Bearer {key}"}
        body = {"model": "scripted", "messages": messages}
        got = self.client.post("/v1/chat/completions", json=body, headers=headers)
        got.raise_for_status()
        self.server.settle()
        return got.headers


@contextmanager
def running_proxy(window: int = WINDOW, recall: str = "0") -> Iterator[Proxy]:
    """Yield a Tidemark whose model has a small window; everything is stopped at the end.

    :param recall: the key ``compaction.defaults.recall.max_tokens``
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(EmbeddedValkey(folder / "store"))
        upstream = ScriptedUpstream()
        served = stack.enter_context(Serving(upstream))
        path = folder / "tidemark.yaml"
        path.write_text(CONFIG.format(url=served.url, window=window, reply=window // REPLY_SHARE, recall=recall))
        settings = load(path, {"TIDEMARK_DATA_DIR": str(folder)})
        app = create_app(settings, store_url=store.url, secret=b"a benchmark's", warn=print)
        server = stack.enter_context(Serving(app))
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=60, verify=NO_TLS))
        proxy = Proxy(client, server)
        upstream.script = proxy.answer
        yield proxy


def parts_of(messages: Sequence[dict[str, Any]]) -> Forwarded:
    """Take a forwarded request apart; the question itself is in no part.

    What was recalled for the talk's own user messages since the last compaction is still there, and counts as recalled.
    """
    summary: list[str] = []
    remaining: list[str] = []
    recalled: list[str] = []
    for message in messages:
        text = text_of({**message, "content": message.get("content") or ""})
        if message["role"] == "system" and text.startswith(SUMMARY_OPENING):
            summary = text.split("\n")
            continue
        if text.startswith(RECALL_OPENING):
            quotes, _, text = text.partition(CLOSING)
            recalled += [quote for quote in quotes.split("\n>>>") if quote.strip()]
        remaining.append(text)
    return Forwarded(remaining[:-1], summary, recalled)


def measure_talk(proxy: Proxy, talk: WrittenTalk, sums: Sums) -> None:
    """Say a talk, and ask each of its questions in a copy of it."""
    messages, covered, key = talk.messages, 0, f"{talk.kind} {talk.name}"
    for place, message in enumerate(messages):
        if message["role"] == "assistant" and place and messages[place - 1]["role"] in ("user", "tool"):
            headers = proxy.send(messages[:place], message["content"], key)
            now = int(headers.get("x-tidemark-summarized-messages", 0))
            sums.compactions += now > covered
            covered = max(covered, now)
    case = talk.case
    for fact in case.facts:
        proxy.send([*messages, {"role": "user", "content": fact.question}], "I see.", key)
        forwarded = parts_of(proxy.received)
        sums.add(case, fact, forwarded)
        texts = ["\n".join(part) for part in (forwarded.messages, forwarded.summary, forwarded.recalled)]
        counts = [proxy.counter.count_text(text, MODEL) for text in texts]
        sums.tokens.append((sum(counts), counts[1], counts[2]))


def measure_kind(proxy: Proxy, kind: str) -> Sums:
    """Measure all talks of a kind."""
    sums = Sums()
    for talk in measured_talks([kind]):
        measure_talk(proxy, talk, sums)
    return sums


def cells_of(kind: str, window: int, recall: str, sums: Sums) -> list[str]:
    """Return a line of the table."""
    shares = [share / sums.facts for share in (sums.survivors, sums.verbatim, sums.summarized, sums.recalled)]
    means = [f"{mean:,.0f}" for mean in sums.means()]
    return [
        kind,
        str(window),
        recall,
        str(sums.facts),
        *(f"{share:.0%}" for share in shares),
        str(sums.compactions),
        *means,
    ]


def main() -> None:
    """Print one line for each kind of talks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(LONG_KINDS), help="of the written talks, with a comma between them")
    parser.add_argument("--window", type=int, help=f"tokens; {WINDOW} for private talks and {SMALL_WINDOW} for others")
    parser.add_argument("--lost", action="store_true", help="also print the questions whose facts are lost")
    arguments = parser.parse_args()
    configure("error")
    print("a fact may stand in a message and in the summary")
    heads = ("kind", "window", "recall", "facts", *PARTS, "compactions", "tokens", "of summary", "of recall")
    print(" ".join(f"{head:>11}" for head in heads))
    for kind in arguments.kinds.split(","):
        window = arguments.window or (WINDOW if kind == "private" else SMALL_WINDOW)
        for recall in RECALLS:
            with running_proxy(window, recall) as proxy:
                sums = measure_kind(proxy, kind)
            print(" ".join(f"{cell:>11}" for cell in cells_of(kind, window, recall, sums)), flush=True)
            if arguments.lost:
                for fact in sums.lost:
                    print(f"  lost: {fact.question} {' '.join(fact.words)}")


if __name__ == "__main__":
    main()
