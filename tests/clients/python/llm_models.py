"""`llm`: a model of its `extra-openai-models.yaml`, over chat completions and responses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driving import MODEL, V1, run, weather

HOME = Path(os.environ["HOME"]) / "llm"
HOME.mkdir(exist_ok=True)
os.environ["LLM_USER_PATH"] = str(HOME)


class Model:
    """A model of `llm`; its own tool is run by its chain."""

    def __init__(self, key: str, more: str = "") -> None:
        import llm

        entry = f"- model_id: {key}\n  model_name: {MODEL}\n  api_base: {V1}\n  supports_tools: true\n"
        (HOME / "extra-openai-models.yaml").write_text(f"{entry}  api_key_name: tidemark\n{more}")
        self.model: Any = llm.get_model(key)
        self.model.key = key

    def whole(self, question: str) -> str:
        return self.model.prompt(question, stream=False).text()

    def stream(self, question: str) -> list[str]:
        return [piece for piece in self.model.prompt(question, stream=True) if piece]

    def tools(self, question: str) -> str:
        return self.model.chain(question, tools=[weather], stream=False).text()

    def talk(self, questions: Sequence[str]) -> list[str]:
        conversation = self.model.conversation()
        return [conversation.prompt(question, stream=False, max_tokens=100).text() for question in questions]


run({"chat": Model, "responses": lambda key: Model(key, "  responses: true\n")})
