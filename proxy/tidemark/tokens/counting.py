"""Counts the tokens of requests and messages, each text once.

The pipeline counts a request after the budget and before the plan. This module implements ``TokenCounter``: it
encodes texts, caches counts, uses threads for long texts and handles failures. ``accounting`` has the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, cast

from tidemark.core.conversation.messages import Message, digest_of, hashed
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import TokenizerFailed
from tidemark.core.ports import RequestCount, Stored
from tidemark.tokens.accounting import BARE, PER_MESSAGE, Scheme, fixed_tokens, message_tokens, scheme_for
from tidemark.tokens.media import IMAGES, kind_of
from tidemark.tokens.tools import serialised
from tidemark.tokens.vocabulary import OWNER, Vocabulary, vocabulary

ESTIMATED_CHARS = 4
"""Characters for one token if counting failed and ``on_failure`` is ``estimate`` (S0-5)."""
THREAD_CHARS = 20_000
"""More new text than this is counted in a thread. Counting this much takes about 3 ms."""
PART_CHARS = 50
"""The work of reading an image's header or a file's metadata, in characters to count."""
HASHED_BYTES = 1_048_576
"""The tools of a larger request are hashed in a thread. Hashing this much takes about a millisecond."""
REMEMBERED_MESSAGES = 50_000
REMEMBERED_TEXTS = 5_000
_UNREMEMBERED_CHARS = 200
"""Counting a shorter text is as quick as looking it up."""
_COST, _CHANGE = b"cost", b"change"
"""Take the place of a message's wording in the cache keys of a request's fixed tokens."""
OnFailure = Literal["error", "estimate"]
_Filled = tuple[Sequence[int], tuple[int, int]]
"""The count of each requested message, and the result of ``fixed_tokens``."""
Key = tuple[str, bytes, bytes]
"""The scheme's key, a digest of the counted value, and a distinction between values of one digest.

The third part is a message's ``wording``. It is empty for a text, and names one of two figures for a request's fixed
tokens. All tenants share the cache, so a key must contain everything that the count depends on.
"""


class LocalTokenCounter:
    """Counts locally; the mutable state is two bounded caches of counts."""

    def __init__(
        self,
        *,
        on_failure: OnFailure = "error",
        on_warning: Callable[[str], None] = lambda _: None,
        folder: Path | None = None,
        counted_as: Mapping[str, str] | None = None,
    ) -> None:
        """Create a counter that loads nothing yet.

        :param on_failure: ``error`` raises (FR-5.2.1); ``estimate`` counts a token for four characters
        :param on_warning: called once, at the first estimate
        :param folder: the folder of the vocabularies; None for those in litellm's wheel
        :param counted_as: by the upstream's name of a model: the encoding, or the name of a model that is counted alike
        """
        self._on_failure = on_failure
        self._on_warning = on_warning
        self._folder = folder
        stated = dict(counted_as or {})
        self._scheme_of = (lambda model: scheme_for(stated.get(model, model))) if stated else scheme_for
        """Returns how a model's tokens are counted; each request asks."""
        self._warned = False
        self._owner_works = False
        self._loaded: dict[str, Vocabulary] = {}
        self._missing: dict[str, TokenizerFailed] = {}
        self._messages = CountCache(REMEMBERED_MESSAGES)
        self._texts = CountCache(REMEMBERED_TEXTS)

    def warm(self, models: Iterable[str]) -> None:
        """Start loading the vocabularies of these models in the background, so that no first request waits for them.

        What cannot be loaded is told to the first request that needs it.
        """
        for encoding in {self._scheme_of(model).family.encoding for model in models}:
            OWNER.submit(self._vocabulary, encoding)

    async def count(
        self, request: ModelRequest, model: str, *, stored_count: int = 0, stored: Stored | None = None
    ) -> RequestCount:
        """Count a request, in a thread if it has more than ``THREAD_CHARS`` of new text.

        :param stored_count: the number of leading non-system messages that are stored with their counts
        :param stored: loads those counts; called if many of them are not cached here
        :raises TokenizerFailed: counting failed, and ``on_failure`` is ``error``
        """
        scheme = self._scheme_of(model)
        hints = request.hints
        # The counts of the leading messages that an earlier request had too, unless any was an estimate.
        reused_counts: tuple[int, ...] = (
            () if hints is None or self._warned else hints.earlier.tokens.get(scheme.key, ())
        )
        new_messages = request.messages[len(reused_counts) :] if reused_counts else request.messages
        counts: Sequence[int | None]
        counts, new_chars = self._lookup(new_messages, scheme)
        if stored is not None and new_chars > THREAD_CHARS:
            first, characters = _missing(request, (*reused_counts, *counts), stored_count)
            if characters > THREAD_CHARS:
                for message, tokens in await stored(scheme.mark, first):
                    self.remember(message, model, tokens)
                counts, new_chars = self._lookup(new_messages, scheme)
        fixed_key = await _fixed_key_of(request, scheme) if request.billed_members else None
        fixed_cost = BARE if fixed_key is None else self._fixed(fixed_key)
        if None in counts or fixed_cost is None:
            if fixed_cost is None:
                new_chars += sum(len(request.fields.get(name, b"")) for name in request.billed_members)
            loaded = scheme.family.encoding in self._loaded
            if loaded and new_chars <= THREAD_CHARS:
                counts, fixed_cost = self._fill(request, new_messages, scheme, counts, fixed_cost)
            else:
                counts, fixed_cost = await self._elsewhere(
                    partial(self._fill, request, new_messages, scheme, counts, fixed_cost), loaded=loaded
                )
            if fixed_key is not None:
                self._texts.put(fixed_key, fixed_cost[0])
                self._texts.put(_change_key(fixed_key), fixed_cost[1])
        all_counts = (*reused_counts, *cast("Sequence[int]", counts))  # none is missing by now
        if hints is not None:
            hints.facts.tokens[scheme.key] = all_counts
        mark = "" if self._warned else scheme.mark
        exact = scheme.family.exact and not self._warned
        cost, change = fixed_cost
        if request.messages and request.messages[0].is_system:
            change = 0
        return RequestCount(all_counts, cost, scheme.family.encoding, exact, mark, change)

    def _fixed(self, key: Key) -> tuple[int, int] | None:
        """Return the cached result of ``fixed_tokens`` for the same members, if there is one."""
        cost, change = self._texts.get(key), self._texts.get(_change_key(key))
        return None if cost is None or change is None else (cost, change)

    def _lookup(self, messages: Sequence[Message], scheme: Scheme) -> tuple[list[int | None], int]:
        """Return the cached count of each message, and the characters of those without one."""
        key, cached, new_chars = scheme.key, self._messages.get, 0
        counts: list[int | None] = []
        for message in messages:
            count = cached((key, message.digest, message.wording))
            if count is None:
                new_chars += _size(message)
            counts.append(count)
        return counts, new_chars

    def count_message(self, message: Message, model: str) -> int:
        scheme = self._scheme_of(model)
        cached = self._messages.get(_key(message, scheme))
        return self._message(message, scheme) if cached is None else cached

    def count_text(self, text: str, model: str) -> int:
        return self._text(self._scheme_of(model), text)

    def rank_of(self, word: str, model: str) -> int | None:
        try:
            return self._vocabulary(self._scheme_of(model).family.encoding).rank(word)
        except TokenizerFailed as error:
            self._estimating(error)
            return None

    def cut_text(self, text: str, model: str, max_tokens: int) -> str:
        family = self._scheme_of(model).family
        try:
            return self._vocabulary(family.encoding).cut(text, max_tokens * 100 // family.percent)
        except TokenizerFailed as error:
            self._estimating(error)
            return text[: max(0, max_tokens) * ESTIMATED_CHARS]

    def remember(self, message: Message, model: str, tokens: int) -> None:
        """Cache a count that another worker made by the same rules, unless it is impossibly small."""
        if tokens > PER_MESSAGE:
            self._messages.put(_key(message, self._scheme_of(model)), tokens)

    async def _elsewhere(self, fill: Callable[[], _Filled], *, loaded: bool) -> _Filled:
        """Count in the quickest thread, or in any other one while that one is busy.

        :param loaded: whether the vocabulary is loaded; loading it uses the quickest thread
        """
        if self._owner_works or not loaded:
            return await asyncio.to_thread(fill)
        self._owner_works = True
        try:
            return await asyncio.get_running_loop().run_in_executor(OWNER, fill)
        finally:
            self._owner_works = False

    def _fill(
        self,
        request: ModelRequest,
        new_messages: Sequence[Message],
        scheme: Scheme,
        known_counts: Sequence[int | None],
        fixed: tuple[int, int] | None,
    ) -> _Filled:
        """Count the messages without a count. Any thread may do this."""
        counts: list[int] = []
        for place, count in enumerate(known_counts):
            counts.append(self._message(new_messages[place], scheme) if count is None else count)
        return counts, fixed_tokens(request, partial(self._text, scheme)) if fixed is None else fixed

    def _message(self, message: Message, scheme: Scheme) -> int:
        # The cache of texts is not used here, because the count of the whole message is cached.
        count = message_tokens(message, partial(self._encoded, scheme), scheme)
        self._messages.put(_key(message, scheme), count)
        return count

    def _text(self, scheme: Scheme, text: str) -> int:
        if len(text) < _UNREMEMBERED_CHARS:
            return self._encoded(scheme, text)
        key = (scheme.texts, hashed(text.encode(errors="surrogatepass")), b"")
        count = self._texts.get(key)
        if count is None:
            count = self._encoded(scheme, text)
            self._texts.put(key, count)
        return count

    def _encoded(self, scheme: Scheme, text: str) -> int:
        if not text:
            return 0
        family = scheme.family
        try:
            count = self._vocabulary(family.encoding).count(text)
        except TokenizerFailed as error:
            self._estimating(error)
            return -(-len(text) // ESTIMATED_CHARS)
        return count if family.percent == 100 else -(-count * family.percent // 100)

    def _vocabulary(self, encoding: str) -> Vocabulary:
        loaded = self._loaded.get(encoding)
        if loaded is not None:
            return loaded
        if encoding in self._missing:
            raise self._missing[encoding]
        try:
            loaded = self._loaded[encoding] = vocabulary(encoding, self._folder)
        except TokenizerFailed as error:
            if self._on_failure == "estimate":  # estimates go on, and each try costs milliseconds
                self._missing[encoding] = error
            raise
        return loaded

    def _estimating(self, error: TokenizerFailed) -> None:
        """Raise the error, or warn once and let an estimate follow."""
        if self._on_failure == "error":
            raise error
        if not self._warned:
            self._warned = True
            self._on_warning(f"Tokens are estimated at {ESTIMATED_CHARS} characters each: {error.message}")


def _key(message: Message, scheme: Scheme) -> Key:
    return scheme.key, message.digest, message.wording


async def _fixed_key_of(request: ModelRequest, scheme: Scheme) -> Key:
    """Return the cache key of a request's fixed tokens; a thread hashes a large request."""
    if len(request.body) <= HASHED_BYTES:
        return _fixed_key(request, scheme)
    return await asyncio.to_thread(_fixed_key, request, scheme)


def _fixed_key(request: ModelRequest, scheme: Scheme) -> Key:
    """Hash the raw bytes if the request has them, which is quicker than serialising again."""
    system = next((message.digest for message in request.messages if message.is_system), b"")
    members = request.billed_members.items()
    parts = [request.fields.get(name) or serialised(value).encode(errors="surrogatepass") for name, value in members]
    return scheme.key, digest_of(system, *[name.encode() for name in request.billed_members], *parts), _COST


def _change_key(fixed: Key) -> Key:
    """Return the cache key of the second figure, for the key of the first one."""
    return *fixed[:2], _CHANGE


def _missing(request: ModelRequest, counts: Sequence[int | None], stored_count: int) -> tuple[int, int]:
    """Return the position of the first stored message without a cached count, and all their characters."""
    pairs = zip(request.messages, counts, strict=True)
    conversation = [(message, count) for message, count in pairs if not message.is_system][:stored_count]
    missing = [(place, message) for place, (message, count) in enumerate(conversation, 1) if count is None]
    return (missing[0][0] if missing else 1), sum(_size(message) for _, message in missing)


def _size(message: Message) -> int:
    """Return about how many characters of a message must be counted, without an image's data."""
    if not message.calls and not message.media:
        return len(message.text) + len(message.name or "") + len(message.answers or "")
    calls = sum(len(call.arguments) + len(call.name) + len(call.id) for call in message.calls)
    parts = len(message.raw) if any(kind_of(part) not in IMAGES for part in message.media) else 0
    parts += PART_CHARS * len(message.media)
    return len(message.text) + calls + parts + len(message.name or "") + len(message.answers or "")


class CountCache:
    """Evicts the counts that were not used for longest, in two generations.

    Each step is one dict operation, so threads share it without a lock.
    """

    def __init__(self, size: int) -> None:
        self._half = max(1, size // 2)
        self._young: dict[Key, int] = {}
        self._old: dict[Key, int] = {}

    def get(self, key: Key) -> int | None:
        count = self._young.get(key)
        return self._older(key) if count is None and self._old else count

    def _older(self, key: Key) -> int | None:
        """Return a count of the older generation, and move it to the younger one."""
        count = self._old.get(key)
        if count is not None:
            self.put(key, count)
        return count

    def put(self, key: Key, count: int) -> None:
        """Cache a count; the cache contains at most ``size``."""
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = count
