"""Random talks of one client with Tidemark, and what of them reaches the upstream; each dialect has a class of its own.

A talk is made of its seed, so a failure can be played again. It says what it does with its own history: a prefix that
changes without such a cause, or one that Tidemark's answer names, is a fault.
"""

from __future__ import annotations

import json
import os
import random
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import httpx

from tests.request.conftest import Bench, benched
from tests.support.answers import Answer, Received
from tests.support.serving import NO_TLS
from tidemark.core.recall.search_function import MOST_SEARCHES

Json = dict[str, Any]
Prefix = tuple[str, list[str]]
"""What stands before the messages of a request, and its messages, as texts that are compared."""
STEPS = 24
QUESTION = 20
"""Words of a question about an earlier message."""
TOPICS = ("harbour", "ferry", "lighthouse", "tide", "island", "lamp", "anchor", "rope")
COMPACTION = """
compaction:
  defaults:
    strategy: extractive
    retention_tokens: 300
    min_tokens: 200
    recall: {{max_tokens: 300, tool: true}}
"""
ENTRY = """
  - model_name: {name}
    litellm_params: {{{{model: openai/{model}, api_base: "{{base}}"}}}}
    model_info: {{{{max_input_tokens: {window}, max_output_tokens: 200}}}}
"""
NAMED_ACTIONS = ("compacted", "forced", "bypassed", "failed")
"""Actions that say that other messages go out than before."""
NAMED_WARNINGS = (
    "clipped",
    "sent again without",
    "cannot read",
    "recalled messages leave",
    "the search of earlier messages is not offered",
)
DEGRADED = "degraded"
"""``X-Tidemark-Store`` of a request that went without the store, as on a machine too busy for it; it excuses all."""
PASSING = ("bypassed", DEGRADED, *NAMED_WARNINGS[:1], *NAMED_WARNINGS[3:])
WINDOW = 1600
ALARM = "the client changed"
"""In the warning of a changed prompt; a talk changes nothing but messages that it edits."""
IDLE_SECONDS = 1
"""A connection is not used again after so long; uvicorn closes it after five, and a busy machine is late to tell."""
MOST_RECEIVED = 2000
"""Requests that are kept of all talks, so that a thousand of them fit into memory."""
WANTED = {"compacted", "forced", "bypassed", "clipped", "recalled", "restarted", "rewound", "forked", "edited"}
"""Outcomes that some of a few talks must have, and ``switched model``."""


def seeds(few: int) -> range:
    """The seeds to play: the first few, or those that ``TIDEMARK_TALKS=from:to`` names."""
    first, _, last = os.environ.get("TIDEMARK_TALKS", f"0:{few}").partition(":")
    return range(int(first), int(last))


def config_of(models: Mapping[str, str]) -> str:
    """The configuration for the upstream's models by their names; ``large`` has a window of 8,000 tokens."""
    entries = [
        ENTRY.format(name=name, model=model, window="8000" if name == "large" else "{window}")
        for name, model in models.items()
    ]
    return "model_list:\n" + "".join(entries) + COMPACTION


@dataclass
class Harbour:
    """Two workers of one store before an upstream, each of which may be restarted."""

    bench: Bench
    config: str
    workers: list[tuple[ExitStack, httpx.Client]] = field(default_factory=list)

    def restart(self, place: int) -> None:
        """End a worker, if there is one, and start another in its place."""
        if place < len(self.workers):
            self.workers[place][0].close()
            del self.workers[place]
        stack, self.bench.stack = self.bench.stack, ExitStack()
        try:
            url = self.bench.start(config=self.config, window=WINDOW)
            limits = httpx.Limits(keepalive_expiry=IDLE_SECONDS)
            client = httpx.Client(base_url=url, timeout=60, verify=NO_TLS, limits=limits)
            http = self.bench.stack.enter_context(client)
            self.workers.insert(place, (self.bench.stack, http))
        finally:
            self.bench.stack = stack

    def close(self) -> None:
        """End all workers."""
        for stack, _ in self.workers:
            stack.close()


@contextmanager
def moored(store_url: str, folder: Path, config: str) -> Iterator[Harbour]:
    """Two workers of one store, as long as the ``with`` block."""
    with benched(store_url, folder) as bench:
        bench.upstream.others.kept = None
        harbour = Harbour(bench, config)
        harbour.restart(0)
        harbour.restart(1)
        yield harbour
        harbour.close()


@dataclass
class Watch:
    """A script that answers as an API does, and keeps what it got and with which status it answered."""

    api: Callable[[Received], Answer]
    entries: list[tuple[Received, int]] = field(default_factory=list)

    def __call__(self, received: Received) -> Answer:
        """Answer a request."""
        answer = self.api(received)
        self.entries.append((received, answer.status))
        return answer


class RandomTalk(ABC):
    """One client's talk: its state is the history that the client has, and where it was before.

    :param harbour: whom it talks to; without workers, to the upstream itself
    """

    path: ClassVar[str]
    models: ClassVar[Sequence[str]] = ("small", "small", "large", "another")
    names: ClassVar[Mapping[str, str]]
    """The upstream's names of the models."""
    excuse: ClassVar[str]
    """What a client does for which its provider refuses it straight, too; often only turns later."""

    def __init__(self, seed: int, harbour: Harbour, api: Any, *, is_straight: bool = False) -> None:
        self.chance = random.Random(seed)
        self.harbour, self.api, self.is_straight = harbour, api, is_straight
        self.key = f"random talk {seed}"
        self.watch = Watch(api)
        self.has_tools = self.chance.random() < 0.7
        self.streams = self.chance.random() < 0.3
        self.model = "small"
        self.history: list[Json] = []
        self.earlier: list[list[Json]] = []
        self.number = self.first = seed * 1000
        self.causes: set[str] = set()
        """Why the client's own history is no longer what it was, in this step."""
        self.passing: set[str] = set()
        """What the last answer said that holds for one turn only, so the next one changes again."""
        self.previous: Prefix | None = None
        self.outcomes: set[str] = set()
        self.failures: list[str] = []
        """Refusals that the client got, but of what is too long, and those by the upstream that nothing excuses."""
        self.refusals: list[str] = []
        """Refusals by the upstream, without the places and ids that they name."""
        self.requests = self.changes = 0
        self.unexplained: list[str] = []
        """Changes of a prefix that nothing names."""

    @abstractmethod
    def body(self) -> Json:
        """The body of the next request."""

    @abstractmethod
    def open_calls(self) -> Sequence[Any]:
        """What of the newest answer calls tools."""

    @abstractmethod
    def results(self, calls: Sequence[Any]) -> list[Json]:
        """Messages with a result of each call."""

    @abstractmethod
    def is_end(self, said: Json) -> bool:
        """Whether a message is an answer behind which a question may stand."""

    @abstractmethod
    def answered(self, answer: httpx.Response) -> list[Json]:
        """The messages of an answer."""

    @abstractmethod
    def forget(self) -> None:
        """Leave out of the history what a provider may refuse."""

    @abstractmethod
    def prefix(self, body: Json) -> Prefix:
        """What a request that reached the upstream says, cache marks aside."""

    def play(self) -> None:
        """Take all steps."""
        for _ in range(STEPS):
            self.step()

    def step(self) -> None:
        """Change the history as clients do, say something, and keep the answer."""
        self.causes = {f"{cause} before" for cause in self.passing}
        if calls := self.open_calls():
            self.history += self.results(calls)
        else:
            self.change()
            self.history.append(self.user(self.words(self.chance.choice((QUESTION, 60, 150)))))
        if self.chance.random() < 0.05 and (model := self.chance.choice(self.models)) != self.model:
            self.causes.add("switched model")
            self.model = model
        if self.chance.random() < 0.02 and not self.is_straight:
            self.harbour.restart(self.chance.randrange(2))
            self.outcomes.add("restarted")
        self.send({0: "force", 1: "off"}.get(self.chance.randrange(16), ""))

    def change(self) -> None:
        """Rewind, go back to a history of before, or edit a message; mostly nothing."""
        chance = self.chance.random()
        if self.history and chance < 0.12:
            self.earlier.append(list(self.history))
            places = [place for place, said in enumerate(self.history) if self.is_end(said)]
            self.history = self.history[: self.chance.choice(places) + 1] if places else []
            self.causes.add("rewound")
        elif self.earlier and chance < 0.18:
            self.history = list(self.chance.choice(self.earlier))
            self.causes.add("forked")
        elif chance < 0.22:
            places = [place for place, said in enumerate(self.history) if isinstance(said.get("content"), str)]
            places = [place for place in places if self.history[place]["role"] == "user"]
            if places:
                place = self.chance.choice(places)
                self.history[place] = {**self.history[place], "content": self.words(60)}
                self.causes.add("edited")

    def user(self, text: str) -> Json:
        """A message of the user's."""
        return {"role": "user", "content": text}

    def words(self, count: int) -> str:
        """Words of a question."""
        self.number += 1
        if count == QUESTION and self.number > self.first + 8:  # about something that is in a summary by now
            early = self.chance.randint(self.first + 1, self.number - 6)
            return f"{self.number}: What was the harbourmaster's decision about vessel V{early}Q?"
        names = " ".join(self.chance.choice(TOPICS) for _ in range(count))
        return f"Point {self.number}: the harbourmaster's decision about vessel V{self.number}Q was delay {names}."

    def size(self, calls: Sequence[Any]) -> int:
        """The words of each of several results; some are long enough to be clipped."""
        return int(self.chance.choice((10, 40, 100, 100, 1500)) // len(calls))

    def send(self, summarize: str) -> None:
        """Send the history to any worker, and keep the answer."""
        asked = {"x-tidemark-summarize": summarize} if summarize and not self.is_straight else {}
        answer = self.post(asked)
        if answer.status_code == 400 and self.is_straight:
            self.refusals.append(kind_of(message_of(answer)))
            self.forget()  # as the providers advise
            answer = self.post(asked)
        if answer.status_code != 200:
            if "too long" not in message_of(answer) and "maximum context" not in message_of(answer):
                self.failures.append(message_of(answer))
            self.history, self.previous = [], None  # a client begins anew
            return
        self.outcomes |= self.named(answer)
        if ALARM in answer.headers.get("x-tidemark-warning", "") and "edited" not in self.outcomes:
            self.failures.append(answer.headers["x-tidemark-warning"])
        self.history += self.answered(answer)

    def post(self, asked: dict[str, str]) -> httpx.Response:
        """Send a request, and compare what reached the upstream with what did before."""
        self.outcomes |= self.causes
        headers = {"authorization": f"Bearer {self.key}", **asked}
        refused, self.watch.entries[:] = len(self.api.refusals), []
        body = self.body()
        if self.is_straight:
            base, body["model"] = self.harbour.bench.upstream_url, self.names[self.model]
            answer = httpx.post(f"{base}{self.path}", json=body, headers=headers, timeout=60, verify=NO_TLS)
        else:
            http = self.chance.choice(self.harbour.workers)[1]
            answer = http.post(self.path, json=body, headers=headers)
            refusals = [kind_of(text) for text in self.api.refusals[refused:]]
            self.refusals += refusals
            self.compare(answer)
            if refusals and not self.outcomes & {self.excuse, DEGRADED}:
                self.failures.append(f"behind a talk that was not {self.excuse}: {refusals}")
        return answer

    def compare(self, answer: httpx.Response) -> None:
        """Find what reached the upstream and is not what was there before, and longer."""
        sent = [self.prefix(received.json) for received, status in self.watch.entries if status == 200]
        self.requests += len(self.watch.entries)
        if not sent:
            return
        found = self.named(answer)
        self.outcomes |= found
        named, self.passing = self.causes | found, found & set(PASSING)
        steps = [(self.previous, sent[0]), *pairwise(sent)]
        for number, (before, after) in enumerate(steps):
            if before is not None and (difference := difference_of(before, after)):
                self.changes += 1
                if not named and number < MOST_SEARCHES:  # the last round has no function, so that it answers
                    action, round_ = answer.headers.get("x-tidemark-action"), f"round {number + 1} of {len(steps)}"
                    self.unexplained.append(f"point {self.number}, {action}, {round_}: {difference}")
        self.previous = sent[0]

    def named(self, answer: httpx.Response) -> set[str]:
        """What the headers of an answer say was done to its request."""
        action, warning = answer.headers.get("x-tidemark-action", ""), answer.headers.get("x-tidemark-warning", "")
        self.outcomes |= {"recalled"} if int(answer.headers.get("x-tidemark-recalled-tokens", 0)) else set()
        words = {word for word in NAMED_WARNINGS if word in warning}
        degraded = {DEGRADED} if answer.headers.get("x-tidemark-store") == DEGRADED else set()
        return words | degraded | ({action} if action in NAMED_ACTIONS else set())


@dataclass
class Figures:
    """What random talks came to."""

    talks: int = 0
    requests: int = 0
    changes: int = 0
    """Of a prefix, all of them named."""
    faults: list[str] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    """By the upstream, behind what the client did, so that the client was answered all the same."""
    straight_refusals: Counter[str] = field(default_factory=Counter)
    """Of the same talks without Tidemark, by which the client has to help itself."""
    outcomes: Counter[str] = field(default_factory=Counter)

    def play(self, kind: Callable[..., RandomTalk], seed: int, harbour: Harbour, api: Callable[[], Any]) -> None:
        """Play a talk through Tidemark and straight."""
        received = harbour.bench.upstream.received
        del received[MOST_RECEIVED:]
        talk, straight = kind(seed, harbour, api()), kind(seed, harbour, api(), is_straight=True)
        for one in (talk, straight):
            harbour.bench.upstream.script = one.watch
            one.play()
        self.talks += 1
        self.requests += talk.requests
        self.changes += talk.changes
        self.faults += [f"talk {seed}: {text}" for text in (*talk.failures, *talk.unexplained, *straight.failures)]
        self.refusals.update(talk.refusals)
        self.straight_refusals.update(straight.refusals)
        self.outcomes.update(talk.outcomes)


def difference_of(before: Prefix, after: Prefix) -> str:
    """Where a request is not the beginning of the next one; empty where it is."""
    if before[0] != after[0]:
        return f"head: {before[0][:300]} -> {after[0][:300]}"
    for place, said in enumerate(before[1]):
        other = after[1][place] if place < len(after[1]) else "(nothing)"
        if said != other:
            return f"message {place} of {len(before[1])}: {said[:300]} -> {other[:300]}"
    return ""


def message_of(answer: httpx.Response) -> str:
    """The message of an error."""
    return str(answer.json()["error"]["message"])


def kind_of(refusal: str) -> str:
    """A refusal without the places and ids that it names."""
    return re.sub(r"\b(\w*\d\w*)\b|gAAA\S*", "N", refusal)


def events_of(stream: str) -> list[Json]:
    """The events of a stream."""
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
