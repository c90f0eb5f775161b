"""Anthropic's prompt cache as a provider keeps it: by breakpoint, with its least size, its life and its lookback.

It needs a request's decoded body and the name of an account, and nothing of these tests. What it keeps are digests of
prefixes, by account and model; a clock that may be moved says when they end. Sizes are estimates: four bytes of a
block's JSON are a token. Source: Anthropic's guides "Prompt caching" and "Errors".
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
MOST_MARKS = 4
LOOKBACK = 20
"""Blocks at which a mark looks for an earlier entry, its own one among them."""
LIVES = {"5m": 300.0, "1h": 3600.0}
"""Seconds from the last use."""
LEAST = 1024
"""Tokens of the shortest prefix that is kept, for models that ``LEAST_OF`` does not name."""
LEAST_OF = (
    (re.compile(r"claude-(opus|fable|mythos)-5(?![-.]\d)"), 512),
    (re.compile(r"claude-(opus-4[-.][567]|haiku-4[-.]5)(?!\d)"), 4096),
    (re.compile(r"claude-(3-haiku|3-5-haiku|haiku-3)"), 2048),
)
BYTES_OF_TOKEN = 4
UNMARKABLE = ("thinking", "redacted_thinking")
TOO_MANY = "A maximum of 4 blocks with cache_control may be provided. Found {found}."
OUT_OF_ORDER = (
    "{place}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
    "Note that blocks are processed in the following order: tools, system, messages."
)


class MarksRefused(ValueError):
    """Cache marks that the provider answers with 400."""


@dataclass(frozen=True)
class Block:
    """One block of a prompt, in the order in which a provider reads it."""

    place: str
    digest: str
    """Of this block and everything before it."""
    tokens: int
    """Of this block and everything before it."""
    life: str = ""
    """Of its mark; empty without one."""


@dataclass
class Entry:
    """A prefix in the cache."""

    life: float
    ends: float


@dataclass
class PromptCache:
    """The cache of a provider, for all its accounts. ``clock`` counts seconds from any origin."""

    clock: Callable[[], float] = time.monotonic
    entries: dict[tuple[str, str, str], Entry] = field(default_factory=dict)
    """By account, model and the digest of a prefix."""
    read: int = 0
    written: int = 0
    plain: int = 0
    """Tokens of all requests: from the cache, into it, and neither."""

    @property
    def share(self) -> float:
        """Which part of all input came from the cache."""
        return self.read / max(1, self.read + self.written + self.plain)

    def usage(self, body: Json, account: str = "", total: int | None = None) -> Json:
        """Read and write what a request's marks ask for, and return the input part of its ``usage``.

        :param total: tokens of the whole input, if the caller counts in another way
        :raises MarksRefused: the provider refuses these marks
        """
        blocks = list(blocks_of(body))
        model, now = body["model"], self.clock()
        marks = [at for at, block in enumerate(blocks) if block.life]
        hits = [hit for at in marks if (hit := self._hit(blocks, at, (account, model), now)) is not None]
        read = max((blocks[hit].tokens for hit in hits), default=0)
        for hit in hits:
            entry = self.entries[account, model, blocks[hit].digest]
            entry.ends = now + entry.life
        made, before = dict.fromkeys(LIVES, 0), read
        for at in marks:
            block = blocks[at]
            if block.tokens < least_of(model):
                continue
            life = LIVES[block.life]
            entry = self.entries.setdefault((account, model, block.digest), Entry(life, now))
            entry.life, entry.ends = max(entry.life, life), max(entry.ends, now + life)
            made[block.life] += max(0, block.tokens - before)
            before = max(before, block.tokens)
        whole = blocks[-1].tokens if blocks else 0
        plain = max(0, (whole if total is None else total) - before)
        self.read, self.written, self.plain = self.read + read, self.written + before - read, self.plain + plain
        return {
            "input_tokens": plain,
            "cache_creation_input_tokens": before - read,
            "cache_read_input_tokens": read,
            "cache_creation": {f"ephemeral_{life}_input_tokens": tokens for life, tokens in made.items()},
        }

    def _hit(self, blocks: list[Block], at: int, owner: tuple[str, str], now: float) -> int | None:
        """The longest prefix in the cache that a mark finds."""
        for place in range(at, max(-1, at - LOOKBACK), -1):
            entry = self.entries.get((*owner, blocks[place].digest))
            if entry is not None and entry.ends > now:
                return place
        return None


def least_of(model: str) -> int:
    """Tokens of the shortest prefix that is kept for a model."""
    return next((tokens for name, tokens in LEAST_OF if name.search(model)), LEAST)


def blocks_of(body: Json) -> Iterator[Block]:
    """The blocks of a prompt: tools, system, messages. How a model is asked is part of what messages follow.

    :raises MarksRefused: the provider refuses these marks
    """
    parts = list(_parts_of(body))
    marks = [_life_of(place, part) for place, part in parts]
    if "cache_control" in body:  # the newest block that may have a mark gets one
        at = max((at for at, (_, part) in enumerate(parts) if part.get("type") not in UNMARKABLE), default=None)
        life = _life_of("request", body)
        if at is not None and marks[at] not in ("", life):
            raise MarksRefused(f"{parts[at][0]}.cache_control.ttl: differs from the request's own cache_control")
        if at is not None:
            marks[at] = life
    if (found := sum(map(bool, marks))) > MOST_MARKS:
        raise MarksRefused(TOO_MANY.format(found=found))
    if "5m" in marks and "1h" in marks[marks.index("5m") :]:
        late = marks.index("1h", marks.index("5m"))
        raise MarksRefused(OUT_OF_ORDER.format(place=parts[late][0]))
    running, size, is_told = hashlib.sha256(), 0, False
    for (place, part), life in zip(parts, marks, strict=True):
        if place.startswith("messages") and not is_told:
            running.update(json.dumps([body.get("tool_choice"), body.get("thinking")]).encode())
            is_told = True
        text = json.dumps({**part, "cache_control": None}, sort_keys=True, ensure_ascii=False).encode()
        running.update(text)
        size += len(text)
        yield Block(place, running.copy().hexdigest()[:16], size // BYTES_OF_TOKEN, life)


def _parts_of(body: Json) -> Iterator[tuple[str, Json]]:
    """The place and the bytes of each block; a text in the place of blocks is one block."""
    for at, tool in enumerate(body.get("tools") or ()):
        yield f"tools.{at}", tool
    system = body.get("system") or []
    for at, block in enumerate([{"type": "text", "text": system}] if isinstance(system, str) else system):
        yield f"system.{at}", block
    for number, said in enumerate(body["messages"]):
        content = said["content"]
        for at, block in enumerate([{"type": "text", "text": content}] if isinstance(content, str) else content):
            yield f"messages.{number}.content.{at}", {"role": said["role"], **block}


def _life_of(place: str, part: Json) -> str:
    """The life that a mark asks for; empty without one.

    :raises MarksRefused: there is no such mark, or it stands where none may
    """
    mark = part.get("cache_control")
    if mark is None:
        return ""
    life = str(mark.get("ttl", "5m"))
    if mark.get("type") != "ephemeral" or life not in LIVES:
        raise MarksRefused(f"{place}.cache_control: must be of type 'ephemeral', with a ttl of '5m' or '1h'")
    if part.get("type") in UNMARKABLE:
        raise MarksRefused(f"{place}.{part['type']}.cache_control: Extra inputs are not permitted")
    return life
