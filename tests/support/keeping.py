"""Upstreams of the Responses API that keep every response, or none; the scripted upstream asks them for its answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.support.scripted import Answer, Received, error

LIMITED = "This model's maximum context length is 900 tokens. However, your messages resulted in 1400 tokens."

TWO_UPSTREAMS = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
  - model_name: other
    litellm_params: {{model: openai/scripted, api_base: "{base}/elsewhere"}}
"""
"""A configuration of two models at two addresses of one scripted server."""
WORDS = "The harbour opens at seven, and the ferry to the islands leaves when the tide allows it. "


def items(text: str, number: int, *, reasoning: bool = False) -> list[dict[str, Any]]:
    """The output of a response."""
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    thought = {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": "sealed by the provider"}
    return [thought, message] if reasoning else [message]


def response(number: int, output: list[dict[str, Any]], **members: Any) -> dict[str, Any]:
    """A response object."""
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "scripted",
        "output": output,
        "usage": {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16},
        **members,
    }


@dataclass
class StatelessUpstream:
    """Answers responses and keeps nothing, as llama.cpp does."""

    numbers: Any = field(default_factory=lambda: count(1))
    text: str = "Fine weather."

    def __call__(self, received: Received) -> Answer:
        """Answer one request."""
        body = received.json
        if body.get("previous_response_id"):
            return error(400, "llama.cpp does not support 'previous_response_id'.")
        number = next(self.numbers)
        return Answer([json.dumps(response(number, items(f"{self.text} ({number})", number))).encode()])


@dataclass
class StatefulUpstream:
    """Keeps every response, as OpenAI does."""

    numbers: Any = field(default_factory=lambda: count(1))
    known: set[str] = field(default_factory=lambda: {"resp_before"})
    most_turns: int = 10**9
    """A conversation of more responses is refused as too long."""
    turns: dict[str, int] = field(default_factory=dict)

    def __call__(self, received: Received) -> Answer:
        """Answer one request."""
        body = received.json
        earlier = body.get("previous_response_id")
        if earlier and earlier not in self.known:
            return error(400, f"Previous response with id '{earlier}' not found.", code="previous_response_not_found")
        turn = self.turns.get(earlier, 0) + 1
        if turn > self.most_turns:
            return error(400, LIMITED, code="context_length_exceeded")
        number = next(self.numbers)
        self.known.add(f"resp_{number}")
        self.turns[f"resp_{number}"] = turn
        return Answer(
            [json.dumps(response(number, items(f"Fine. ({number})", number), previous_response_id=earlier)).encode()]
        )
