"""Clip a request: rewrite the messages that the core found too large, and count them again.

``pipeline/clip.py`` calls this for what a client sent, and ``offline.py`` for a single request.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from tidemark.core.conversation.request import ModelRequest
from tidemark.core.planning.clip import Clip, ClipFunctions, clipped
from tidemark.core.ports import RequestCount, TokenCounter


async def clip_request(
    request: ModelRequest, count: RequestCount, clips: tuple[Clip, ...], model: str, counter: TokenCounter
) -> tuple[ModelRequest, RequestCount]:
    """Return the request with clipped messages and their count; its body stays as it was.

    Large messages are clipped in threads, off the event loop.
    """
    functions = ClipFunctions(
        partial(counter.count_message, model=model),
        partial(counter.count_text, model=model),
        lambda text, max_tokens: counter.cut_text(text, model, max_tokens),
        request.dialect.replace_middle,
    )
    messages, tokens = list(request.messages), list(count.messages)
    for clip in clips:
        place = clip.place
        messages[place] = await asyncio.to_thread(clipped, messages[place], tokens[place], clip.max_tokens, functions)
        tokens[place] = counter.count_message(messages[place], model)
    return replace(request, messages=tuple(messages)), replace(count, messages=tuple(tokens))
