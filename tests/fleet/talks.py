"""Conversations through a fleet, and the upstream behind it, which looks at every request that reaches it.

Each message has a marker of its own, `t07m012`: message 12 of talk 7. So the upstream can tell whether a request has
all messages of one conversation, each once and in order, but for those that its summary says it stands for.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.scenarios.talks import is_summary_call
from tests.support.scripted import Answer, Received, says
from tidemark.core.conversation.summary import OPENING

MARKER = re.compile(r"t(\d\d)m(\d\d\d)")
COVERED = re.compile(rf"{re.escape(OPENING)}\D*(\d+) message")
NAME = "llm.example.com"
MADE = "They went through the points one after another"
"""Words of a model's summary. One that is made while the store does not answer has none of them."""
RETRY_SECONDS = 0.05
UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE


def text_of(talk: int, number: int, words: int = 40) -> str:
    """The text of a message: its marker, and words that no other has."""
    return f"t{talk:02}m{number:03} says: " + " ".join(f"w{talk}x{number}y{place % 9}" for place in range(words // 5))


def content_of(message: dict[str, Any]) -> str:
    """Its text."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content)


@dataclass
class Witness:
    """The upstream's script, and what it saw."""

    faults: list[str] = field(default_factory=list)
    gaps: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Stored messages that a request lacks, by talk: acknowledged turns that the store has lost."""
    calls: dict[tuple[int, bytes], list[float]] = field(default_factory=lambda: defaultdict(list))
    """Times of the summarizer's calls by talk and body."""
    summaries: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """Texts of the model's summaries by talk and number of messages that they stand for."""
    requests: int = 0

    def __call__(self, request: Received) -> Answer:
        """Answer with the next message of the talk."""
        if is_summary_call(request):
            markers = sorted(set(MARKER.findall(content_of(request.messages[1]))))
            self.calls[int(markers[0][0]), request.body].append(time.monotonic())
            told = ", ".join(f"t{talk}m{number}" for talk, number in markers[-5:])
            return says(f"{MADE} and agreed upon each, up to {told}.")(request)
        self.requests += 1
        talk, newest = self._look(request.messages)
        return says(text_of(talk, newest + 1))(request)

    def _look(self, messages: list[dict[str, Any]]) -> tuple[int, int]:
        """Return the talk and the number of the newest message, after a look at all of them."""
        first = content_of(messages[0])
        said = COVERED.search(first)
        covered = int(said[1]) if said else 0
        places = [tuple(map(int, MARKER.findall(content_of(one))[0])) for one in messages[bool(said) :]]
        talk, newest = places[-1]
        if said and MADE in first:
            self.summaries[talk, covered].add(first)
        expected = [(talk, number) for number in range(covered, newest + 1)]
        if places != expected:
            missing = [place for place in expected if place not in places]
            if [place for place in places if place in expected] == places and missing:
                self.gaps[talk] += len(missing)
            else:
                self.faults.append(f"{covered} covered, then {places}")
        return talk, newest


@dataclass
class Talk:
    """One conversation that goes on until it is ended."""

    number: int
    http: httpx.AsyncClient
    is_stored: bool = False
    """Whether its client sends the last answer and the new question only, so that a repeated question is known."""
    streams: bool = False
    turns: int = 0
    refusals: list[str] = field(default_factory=list)
    cuts: list[tuple[float, float]] = field(default_factory=list)
    """When each request began and ended whose connection ended before its answer: its proxy died; monotonic seconds."""
    degraded: int = 0
    conversations: list[str] = field(default_factory=list)
    """Its ids; there are several where an answer was stored and did not arrive."""
    is_ended: bool = False
    messages: list[dict[str, str]] = field(default_factory=list)

    async def run(self) -> None:
        """Turn after turn."""
        while not self.is_ended:
            await self.turn()

    async def turn(self) -> None:
        """One turn; what is refused is sent again."""
        if len(self.messages) % 2 == 0:
            self.messages.append({"role": "user", "content": text_of(self.number, len(self.messages))})
        began_at = time.monotonic()
        try:
            answer = await self.http.post("/v1/chat/completions", json=self.body(), headers=self.headers())
        except httpx.RemoteProtocolError as error:
            self.cuts.append((began_at, time.monotonic()))
            await self._refused(f"cut {error!r}")
            return
        except httpx.TransportError as error:
            await self._refused(repr(error))
            return
        reply = reply_of(answer)
        if not reply:
            await self._refused(f"{answer.status_code} {answer.text[:200]}")
            return
        assert reply == text_of(self.number, len(self.messages)), (self.number, reply)
        self.degraded += answer.headers["x-tidemark-store"] != "ok"
        conversation = answer.headers["x-tidemark-conversation"]
        if conversation not in self.conversations:
            self.conversations.append(conversation)
        self.messages.append({"role": "assistant", "content": reply})
        self.turns += 1

    def body(self) -> dict[str, Any]:
        """The next request's."""
        messages = self.messages[-2:] if self.is_stored else self.messages
        return {"model": "small", "max_tokens": 100, "messages": messages, "stream": self.streams}

    def headers(self) -> dict[str, str]:
        """The next request's."""
        if not self.is_stored:
            return {}
        return {"x-tidemark-conversation": f"talk {self.number}", "x-tidemark-history": "stored"}

    async def _refused(self, reason: str) -> None:
        self.refusals.append(reason)
        await asyncio.sleep(RETRY_SECONDS)


def reply_of(answer: httpx.Response) -> str:
    """The text of a whole answer; empty where there is none."""
    if answer.status_code != httpx.codes.OK:
        return ""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return str(answer.json()["choices"][0]["message"]["content"])
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    if lines[-1:] != ["[DONE]"]:
        return ""
    choices = [choice for line in lines[:-1] for choice in json.loads(line).get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def client(url: str, key: str = "sk-fleet") -> httpx.AsyncClient:
    """A client of the site."""
    headers = {"host": NAME, "authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=url, headers=headers, verify=UNVERIFIED, timeout=60)
