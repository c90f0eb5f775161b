"""Claude Code before an API that binds thinking to what stood before it, straight and through Tidemark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agents import CLAUDE, Agent, claude
from tests.clients.conftest import SUMMARY, skip_unless_installed
from tests.providers.anthropic_messages import THINKING, EnforcingAnthropic
from tests.request.conftest import Bench, benched
from tidemark.store.embedded.server import EmbeddedValkey

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]
Json = dict[str, Any]
MODEL = "claude-opus-5-5"
"""As the provider names it: Claude Code leaves thinking out where an answer names another model than it asked for."""
ANSWER = "It is all done now."
TURNS = 10
WINDOW = 50_000
"""Claude Code's own text and tools take 18,000 tokens of it."""
LEAST_SHARE = 0.8
"""Of the input that comes from the cache though every turn is compacted; it was 0.87, and 0.95 straight."""
CONFIG = """
model_list:
  - model_name: claude-opus-5-5
    litellm_params: {{model: anthropic/claude-opus-5-5, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 1000}}
compaction:
  defaults: {{strategy: extractive}}
"""


class Saying:
    """What the model says in a folder: it looks at a file in two ways at once, looks again, and answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, body: Json) -> Sequence[Json]:
        """Think, and call tools until two results are there."""
        said = [message for message in body["messages"] if message["role"] == "user"]
        asked = max(place for place, message in enumerate(said) if "tool_use_id" not in json.dumps(message))
        thinking = {"type": "thinking", "thinking": f"Hm, {len(said)}."}
        mark, step = f"toolu_{sha256(json.dumps(body).encode()).hexdigest()[:20]}", len(said) - 1 - asked
        if not body.get("tools") or step > 1:
            return [thinking, {"type": "text", "text": ANSWER}]
        look = {"command": "cat notes.txt", "description": "Show the notes"}
        calls = [{"type": "tool_use", "id": mark, "name": "Bash", "input": look}]
        if not step:
            read = {"file_path": str(self.folder / "notes.txt")}
            calls.append({"type": "tool_use", "id": f"{mark}_2", "name": "Read", "input": read})
        return [thinking, *calls]


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The enforcing API, and what stands before it."""
    with (
        EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as valkey,
        benched(valkey.url, tmp_path_factory.mktemp("site")) as made,
    ):
        yield made


def hold(bench: Bench, url: str, folder: Path) -> tuple[list[str], EnforcingAnthropic]:
    """Hold a talk of several turns, a process for each, before an API of its own."""
    folder.mkdir()
    (folder / "notes.txt").write_text("".join(f"Berth {4400 + line} is free.\n" for line in range(60)))
    bench.upstream.script = api = EnforcingAnthropic(say=Saying(folder))
    bench.upstream.received.clear()
    prompts = [f"Point {turn}: " + " ".join(f"w{turn}x{word % 7}" for word in range(2500)) for turn in range(TURNS)]
    agent = Agent("claude-code", "messages", partial(claude, model=MODEL), CLAUDE)
    return [text.strip() for text in agent.say(url, "sk-enforced", folder, prompts)], api


def test_claude_code_is_refused_nothing_straight_and_nothing_behind_five_compactions(
    bench: Bench, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each turn thinks, calls two tools at once and then one; both runs end with every turn answered."""
    skip_unless_installed("" if CLAUDE.exists() else "Claude Code is not installed: make test-clients")
    printed, straight = hold(bench, bench.upstream_url, tmp_path / "straight")
    assert printed == [ANSWER] * TURNS
    assert straight.refusals == []
    printed, through = hold(bench, bench.start(own=True, window=WINDOW, config=CONFIG), tmp_path / "through")
    assert printed == [ANSWER] * TURNS
    assert through.refusals == []
    bodies = [received.json for received in bench.upstream.received if SUMMARY in received.body]
    summaries = {text for body in bodies for said in body["messages"] if SUMMARY.decode() in (text := json.dumps(said))}
    assert len(summaries) >= 5
    kept = [said for body in bodies for said in body["messages"] if said["role"] == "assistant"]
    assert any(block["type"] in THINKING for said in kept for block in said["content"])
    record_property("share from the cache, straight", straight.cache.share)
    record_property("share from the cache, through", through.cache.share)
    assert through.cache.share > LEAST_SHARE
