"""Cache marks that Tidemark puts into a compacted request, if its client set none.

Some providers read a prefix from their prompt cache only if a mark ends it. A summary stands in every request until the
next one, so a mark on it, and one on the system text before it, make most of the request cheaper (docs/adr/0039).
Source: Anthropic's guide "Prompt caching", "Cache limitations"; OpenAI's guide "Prompt caching", explicit breakpoints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from tidemark.core.frozen import frozen

MarkPolicy = Literal["auto", "on", "off"]
"""Whether Tidemark marks: where the provider is known to take it, wherever the model's name says so, or never."""
REMEMBERED_NAMES = 1024
LEAST_TOKENS = 1024
"""The shortest prefix that most models cache."""
MOST_LEAST_TOKENS = 4096
"""The same of those that cache none shorter."""
CLAUDES_FIRST, OPENAIS_FIRST = 4, (5, 6)
"""The first versions of Anthropic's and OpenAI's models that are marked; some clouds refuse marks for older ones."""
_CLAUDE = re.compile(r"claude-[a-z]+-(\d{1,2})(?!\d)")
_SHORT = re.compile(r"claude-(sonnet|fable|mythos|opus-(?!4[-.][567](?!\d)))")
"""Models that cache prefixes from ``LEAST_TOKENS`` on, or shorter ones; others may want ``MOST_LEAST_TOKENS``."""
_GPT = re.compile(r"(?:^|/)gpt-(\d{1,2})(?:\.(\d{1,2}))?(?![\d.])")


@frozen
class MarkFormat:
    """How a provider wants its marks."""

    member: bytes
    """The member of a block or a part, as JSON."""
    least_tokens: int
    """Of the shortest prefix that its model caches."""
    names: tuple[str, ...]
    """Members by which a client says itself what is to be cached."""

    def is_in(self, fields: Mapping[str, bytes]) -> bool:
        """Return whether a client marks anything in its request."""
        quoted = [json.dumps(name).encode() for name in self.names]
        return any(name in fields for name in self.names) or any(
            name in raw for raw in fields.values() for name in quoted
        )


@frozen
class CacheMarks:
    """The marks of one request: one on the summary, and one on the system text before it."""

    member: bytes
    on_system: bool


def marks_for(form: MarkFormat, head_tokens: int, summary_tokens: int) -> CacheMarks | None:
    """Return the marks of a compacted request; None if the provider would cache neither prefix.

    They depend on what stands up to the summary only, so all requests with one summary have the same.

    :param head_tokens: of tools and system messages
    """
    if head_tokens + summary_tokens < form.least_tokens:
        return None
    return CacheMarks(form.member, on_system=head_tokens >= form.least_tokens)


@lru_cache(maxsize=REMEMBERED_NAMES)
def claudes_format(model: str) -> MarkFormat | None:
    """Return the marks of a model of Anthropic's; None if its name is none that caches."""
    match = _CLAUDE.search(model.lower())
    if match is None or int(match[1]) < CLAUDES_FIRST:
        return None
    least = LEAST_TOKENS if _SHORT.search(model.lower()) else MOST_LEAST_TOKENS
    return MarkFormat(b'"cache_control":{"type":"ephemeral"}', least, ("cache_control",))


@lru_cache(maxsize=REMEMBERED_NAMES)
def openais_format(model: str) -> MarkFormat | None:
    """Return the marks of a model of OpenAI's; None if it caches by itself alone."""
    match = _GPT.search(model.lower())
    if match is None or (int(match[1]), int(match[2] or 0)) < OPENAIS_FIRST:
        return None
    names = ("prompt_cache_breakpoint", "prompt_cache_options")
    return MarkFormat(b'"prompt_cache_breakpoint":{"mode":"explicit"}', LEAST_TOKENS, names)
