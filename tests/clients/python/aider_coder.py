"""`aider`: its coder, which a terminal or a script runs alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from driving import MODEL, V1, run


class Coder:
    """A coder that only answers questions, in a folder without files."""

    def __init__(self, key: str) -> None:
        os.environ |= {"OPENAI_API_KEY": key, "OPENAI_API_BASE": V1}

    def coder(self, *, stream: bool) -> Any:
        """A new coder."""
        from aider.coders import Coder as AiderCoder
        from aider.io import InputOutput
        from aider.models import Model

        model = Model(f"openai/{MODEL}")
        terminal = InputOutput(yes=True, pretty=False, fancy_input=False)
        return AiderCoder.create(
            main_model=model, edit_format="ask", io=terminal, stream=stream, use_git=False, map_tokens=0
        )

    def whole(self, question: str) -> str:
        return self.coder(stream=False).run(question)

    def stream(self, question: str) -> list[str]:
        pieces: list[str] = []
        coder = self.coder(stream=True)
        coder.io.assistant_output = lambda *_, **__: None
        shown = coder.show_send_output_stream

        def seen(completion: Any) -> Any:
            for piece in completion:
                pieces.append(piece.choices[0].delta.content or "")
                yield piece

        coder.show_send_output_stream = lambda completion: shown(seen(completion))
        coder.run(question)
        return [piece for piece in pieces if piece]

    def talk(self, questions: Sequence[str]) -> list[str]:
        coder = self.coder(stream=True)
        return [coder.run(question) for question in questions]


run({"chat": Coder})
