"""Clipping of a request: the messages that the core found too large are rewritten and counted again.

Below the pipeline, which clips what a client sent, and ``offline.py``, which clips a single request.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from proxy.core.conversation.messages import ModelRequest
from proxy.core.planning.clip import Clip, Scissors, clipped
from proxy.core.ports import RequestCount, TokenCounter
from proxy.dialects.chat.clipping import replace_middle


async def clip_request(
    request: ModelRequest, count: RequestCount, clips: tuple[Clip, ...], model: str, counter: TokenCounter
) -> tuple[ModelRequest, RequestCount]:
    """The request with other messages, its body as it was, and its count. Off the event loop: messages are large."""
    scissors = Scissors(
        partial(counter.count_message, model=model),
        partial(counter.count_text, model=model),
        lambda text, most: counter.cut_text(text, model, most),
        replace_middle,
    )
    messages, tokens = list(request.messages), list(count.messages)
    for one in clips:
        place = one.place
        messages[place] = await asyncio.to_thread(clipped, messages[place], tokens[place], one.max_tokens, scissors)
        tokens[place] = counter.count_message(messages[place], model)
    return replace(request, messages=tuple(messages)), replace(count, messages=tuple(tokens))
