"""A talk with a Tidemark that has a preset: what was said, what was forwarded, what is stored of it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, long, user
from tests.support.scripted import Answer, Received, ScriptedUpstream, says, whole
from tidemark.core.conversation.records import ConversationRecord, MessageRecord
from tidemark.core.conversation.summary import OPENING, PrefixSummary
from tidemark.store.codec import Codec, TurnEntry
from tidemark.store.conversations import RedisStore

ROOT = Path(__file__).parents[2]
CONFIG = """
preset: {preset}
model_list:
  - model_name: main
    litellm_params: {{{{model: openai/main, api_base: "{{base}}"}}}}
    model_info: {{{{max_input_tokens: {{window}}, max_output_tokens: 200}}}}
  - model_name: quick
    litellm_params: {{{{model: openai/quick, api_base: "{{base}}"}}}}
    model_info: {{{{max_input_tokens: 16000, max_output_tokens: 2000}}}}
  - model_name: "gpt-*"
    litellm_params: {{{{model: "openai/gpt-*", api_base: "{{base}}"}}}}
compaction:
  defaults: {{{{prepare: {prepare}, {{more}}}}}}
"""
"""A file that names a preset and says little else; ``more`` is what a user of it has to state."""
SUMMARY = "Summary number {number}. The points were gone through one after another, and each was agreed upon by both."
RATE_LIMITED = Answer([b'{"error": {"message": "slow down", "type": "requests", "param": null, "code": null}}'], 429)


def is_summary_call(request: Received) -> bool:
    """Whether the upstream is asked to summarize: our own prompt, not the client's."""
    return len(request.messages) == 2 and str(request.messages[0]["content"]).startswith("You summarize")


def summaries(messages: Sequence[Said]) -> list[str]:
    """The texts of the summary messages among them."""
    return [said["content"] for said in messages if str(said.get("content")).startswith(OPENING)]


@dataclass(frozen=True)
class Stored:
    """What the store holds of a conversation."""

    record: ConversationRecord
    messages: Sequence[MessageRecord]
    summaries: Sequence[PrefixSummary]
    turns: Sequence[TurnEntry]


@dataclass
class Talk:
    """One conversation, its client and its upstream."""

    client: Client
    upstream: ScriptedUpstream
    store_url: str
    said: list[Said] = field(default_factory=list)
    summarize: Callable[[Received], Answer] | None = None
    """How the upstream answers when it is asked to summarize; None for a good summary."""

    def __post_init__(self) -> None:
        self.upstream.script = self._script

    def _script(self, request: Received) -> Answer:
        if not is_summary_call(request):
            return says(long(len(self.said)))(request)
        if self.summarize is not None:
            return self.summarize(request)
        return whole(SUMMARY.format(number=len(self.calls)))

    @property
    def calls(self) -> list[Received]:
        """The requests for a summary so far."""
        return [one for one in self.upstream.received if is_summary_call(one)]

    @property
    def forwarded(self) -> list[Received]:
        """The client's requests as the upstream got them."""
        return [one for one in self.upstream.received if not is_summary_call(one)]

    @property
    def sent(self) -> list[Said]:
        """The messages that were forwarded last."""
        return self.forwarded[-1].messages

    def send(self, *said: Said, **asked: str) -> httpx.Response:
        """Send the conversation with more at its end; the answer is not taken into it."""
        return self.client.chat([*self.said, *said], model="main", **asked)

    def ask(self, text: str | None = None, **asked: str) -> httpx.Response:
        """Say something and take in the answer."""
        self.said.append(user(text or long(len(self.said))))
        got = self.send(**asked)
        assert got.status_code == 200, got.text
        self.said.append(assistant(got.json()["choices"][0]["message"]["content"]))
        return got

    def until(self, action: str, most: int = 80, pause: Callable[[], None] = lambda: None) -> httpx.Response:
        """Talk on until something is done.

        :param pause: what a person does who reads the answer before the next question
        """
        for _ in range(most):
            pause()
            got = self.ask()
            if got.headers["x-tidemark-action"] == action:
                return got
        message = f"no turn of {most} was {action}"
        raise AssertionError(message)

    def count(self, *messages: Said) -> int:
        """Tokens of a request of these messages, as ``POST /tidemark/count`` tells them."""
        counted: int = self.counted({"model": "main", "messages": list(messages)})["input_tokens"]
        return counted

    def counted(self, request: Any) -> dict[str, Any]:
        """All that ``POST /tidemark/count`` tells of a request."""
        told: dict[str, Any] = self.client.http.post("/tidemark/count", json=request).json()
        return told

    def stored(self, got: httpx.Response) -> Stored:
        """What is stored of the conversation that an answer belongs to."""

        async def read() -> Stored:
            store = RedisStore(self.store_url, Codec(), ttl_seconds=60)
            try:
                conversation = got.headers["x-tidemark-conversation"]
                record = await store.conversation(conversation)
                assert record is not None
                return Stored(
                    record,
                    await store.messages(conversation),
                    await store.summaries(conversation),
                    await store.all_turns(conversation),
                )
            finally:
                await store.close()

        return asyncio.run(read())


def talk_with(
    bench: Bench,
    store_url: str,
    key: str,
    preset: str,
    more: str = "",
    *,
    window: int = 2000,
    also: str = "",
    prepare: float = 1,
) -> Talk:
    """A talk with a Tidemark that has this preset.

    :param more: keys of ``compaction.defaults`` beside it
    :param also: further lines of the file
    :param prepare: 1, since no source makes summaries ahead: with it, what is kept depends on when they were made
    """
    config = CONFIG.format(preset=preset, prepare=prepare) + also
    return Talk(bench.client(key, config=config, window=window, more=more, store=store_url), bench.upstream, store_url)


def number_in(got: httpx.Response, name: str) -> int:
    """A number out of the response's own headers: ``tokens-after``, ``limit``."""
    return int(got.headers[f"x-tidemark-{name}"])


def count_without_tokenizer(folder: Path, preset: str) -> subprocess.CompletedProcess[str]:
    """``tidemark count`` with a preset, where the tokenizer's vocabularies are not to be found.

    They lie in litellm's package; here another, empty one stands before it.
    """
    empty = folder / "litellm"
    empty.mkdir(exist_ok=True)
    (empty / "__init__.py").write_text("")
    return subprocess.run(
        [sys.executable, "-m", "tidemark", "count", "--config", str(ROOT / "config" / "presets" / f"{preset}.yaml")],
        input='{"model": "gpt-4o", "messages": [{"role": "user", "content": "12345678901234567890"}]}',
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'proxy'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def previous(call: Received) -> str:
    """The summary before, as a summarizer was given it: it stands before the messages since."""
    assert "It begins with the summary of what came before" in call.messages[1]["content"]
    return transcript(call).partition("\n\n")[0]


def transcript(call: Received) -> str:
    """What a summarizer was given to summarize: all between the marks of its prompt."""
    found = re.search(r"<<<TRANSCRIPT\n(.*)\nTRANSCRIPT>>>", call.messages[1]["content"], re.DOTALL)
    assert found
    return found[1]
