"""Checks the prompts of ``POST /v1/completions`` against the model's window, before they are sent.

It stands beside the pipeline: a prompt has no messages, so nothing of it could be summarized. Source: OpenAI API
reference, "Create completion".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import ContextLengthExceeded
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, ModelCatalog, Route, TokenCounter
from tidemark.offload.threads import MANY_BYTES

TEMPLATE_MARKS = (
    "<|im_start|>",
    "<|start_header_id|>",
    "<|begin_of_text|>",
    "<|start|>",
    "<|user|>",
    "<start_of_turn>",
    "[INST]",
)
"""Marks of chat templates (ChatML, Llama, Gemma, Mistral and others). A client that writes them has cut its history to
the window by the model's own count, and each mark is one token there and several in ours."""


@frozen
class PromptCheck:
    """Refuses prompts that cannot fit; it has no state."""

    catalog: ModelCatalog
    counter: TokenCounter

    async def check(self, route: Route, prompt: JsonValue, caller: Caller) -> None:
        """Check each prompt of a request.

        A model whose window is only a default has no known bound, and its upstream decides.

        :param prompt: a text, a list of tokens, or a list of either
        :raises ContextLengthExceeded: one of them is longer than the model's window
        :raises TokenizerFailed: it cannot be counted
        """
        window = (await self.catalog.profile(route, caller)).window
        if window.source == "default":
            return
        most = min(window.window, window.max_input_tokens)
        for single in _prompts(prompt):
            tokens = await self._count(single, route.upstream_model, most)
            if tokens > most:
                raise ContextLengthExceeded(
                    f"This model's maximum context length is {most} tokens. However, your prompt resulted in {tokens} "
                    "tokens. Please reduce the length of the prompt.",
                    param="prompt",
                )

    async def _count(self, prompt: str | list[JsonValue], model: str, most: int) -> int:
        """Return a prompt's tokens, or a lower number if it cannot exceed the window."""
        if not isinstance(prompt, str):
            return len(prompt)
        size = len(prompt.encode("utf-8", "replace"))
        if size <= most or any(mark in prompt for mark in TEMPLATE_MARKS):  # a token is one byte or more
            return 0
        if size < MANY_BYTES:
            return self.counter.count_text(prompt, model)
        return await asyncio.to_thread(self.counter.count_text, prompt, model)


def _prompts(prompt: JsonValue) -> Iterator[str | list[JsonValue]]:
    """Yield each prompt of a request; the upstream judges anything that is no prompt."""
    if isinstance(prompt, str):
        yield prompt
    elif isinstance(prompt, list):
        if all(isinstance(item, int) for item in prompt):
            yield prompt
        else:
            yield from (item for item in prompt if isinstance(item, str | list))
