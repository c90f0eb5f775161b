"""Counting requests and messages, each text once: the figures that budget and plan work with.

On the road of a request after the budget and before the plan. Implements ``TokenCounter``. ``accounting``
has the rules; here is what they are asked with: encoded text, what is remembered, threads, failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, cast

from proxy.core.conversation.messages import Message, ModelRequest, digest_of, hashed
from proxy.core.errors import TokenizerFailed
from proxy.core.ports import RequestCount, Stored
from proxy.tokens.accounting import BARE, PER_MESSAGE, Scheme, fixed_tokens, message_tokens, scheme_for
from proxy.tokens.media import IMAGES, kind_of
from proxy.tokens.memory import CountCache, Key
from proxy.tokens.tools import serialised
from proxy.tokens.vocabulary import OWNER, Vocabulary, vocabulary

ESTIMATED_CHARS = 4
"""Characters a token where counting failed and ``on_failure`` is ``estimate`` (S0-5)."""
THREAD_CHARS = 20_000
"""New text beyond this is counted in a thread: as much takes about 3 ms."""
PART_CHARS = 50
"""What reading an image's header, or what is said about a file, takes in characters to count."""
HASHED_BYTES = 1_048_576
"""Of a larger request tools are hashed in a thread: as much takes about a millisecond."""
REMEMBERED_MESSAGES = 50_000
REMEMBERED_TEXTS = 5_000
_UNREMEMBERED_CHARS = 200
"""Below this, counting anew is as quick as looking it up."""
_COST, _CHANGE = b"cost", b"change"
"""What stands in the place of a wording where the tokens of what is billed beside messages are remembered."""
OnFailure = Literal["error", "estimate"]
_Filled = tuple[Sequence[int], tuple[int, int]]
"""The count of each message that was asked for, and of all else as ``fixed_tokens`` gives it."""


class LocalTokenCounter:
    """Local counts; the mutable state is two bounded memories of counts."""

    def __init__(
        self,
        *,
        on_failure: OnFailure = "error",
        on_warning: Callable[[str], None] = lambda _: None,
        folder: Path | None = None,
    ) -> None:
        """Nothing is loaded yet.

        :param on_failure: ``error`` raises (FR-5.2.1); ``estimate`` takes a token for four characters
        :param on_warning: told once, when the first estimate is made
        :param folder: of the vocabularies; None for the ones in litellm's wheel
        """
        self._on_failure = on_failure
        self._on_warning = on_warning
        self._folder = folder
        self._warned = False
        self._owner_works = False
        self._loaded: dict[str, Vocabulary] = {}
        self._missing: dict[str, TokenizerFailed] = {}
        self._messages = CountCache(REMEMBERED_MESSAGES)
        self._texts = CountCache(REMEMBERED_TEXTS)

    async def count(
        self, request: ModelRequest, model: str, *, known: int = 0, stored: Stored | None = None
    ) -> RequestCount:
        """Count a request; new text beyond ``THREAD_CHARS`` in sum is counted in a thread.

        :param known: how many leading non-system messages are stored with their counts
        :param stored: gives those counts; asked where much of what is stored is not remembered here
        :raises TokenizerFailed: nothing is approximated unless that was chosen
        """
        scheme = scheme_for(model)
        lineage, before = request.lineage, ("tokens", scheme.key)
        # of the leading messages that an earlier request had too, as long as none was an estimate
        known_here: tuple[int, ...] = () if lineage is None or self._warned else lineage.before.get(before, ())
        added = request.messages[len(known_here) :] if known_here else request.messages
        found: Sequence[int | None]
        found, new = self._found(added, scheme)
        if stored is not None and new > THREAD_CHARS:
            first, characters = _missing(request, (*known_here, *found), known)
            if characters > THREAD_CHARS:
                for message, tokens in await stored(scheme.mark, first):
                    self.remember(message, model, tokens)
                found, new = self._found(added, scheme)
        fixed_key = await _fixed_key_of(request, scheme) if request.counted else None
        fixed = BARE if fixed_key is None else self._fixed(fixed_key)
        if None in found or fixed is None:
            if fixed is None:
                new += sum(len(request.fields.get(name, b"")) for name in request.counted)
            loaded = scheme.family.encoding in self._loaded
            if loaded and new <= THREAD_CHARS:
                found, fixed = self._fill(request, added, scheme, found, fixed)
            else:
                found, fixed = await self._elsewhere(
                    partial(self._fill, request, added, scheme, found, fixed), loaded=loaded
                )
            if fixed_key is not None:
                self._texts.put(fixed_key, fixed[0])
                self._texts.put(_change_key(fixed_key), fixed[1])
        counts = (*known_here, *cast("Sequence[int]", found))  # by now there is none missing
        if lineage is not None:
            lineage.found[before] = counts
        mark = "" if self._warned else scheme.mark
        exact = scheme.family.exact and not self._warned
        cost, change = fixed
        if request.messages and request.messages[0].is_system:
            change = 0
        return RequestCount(counts, cost, scheme.family.encoding, exact, mark, change)

    def _fixed(self, key: Key) -> tuple[int, int] | None:
        """What ``fixed_tokens`` gave for the same members, if it is still known."""
        cost, change = self._texts.get(key), self._texts.get(_change_key(key))
        return None if cost is None or change is None else (cost, change)

    def _found(self, messages: Sequence[Message], scheme: Scheme) -> tuple[list[int | None], int]:
        """The count of each message, if it is still known, and the characters of those that are still to be counted."""
        key, known, new = scheme.key, self._messages.get, 0
        found: list[int | None] = []
        for message in messages:
            count = known((key, message.digest, message.wording))
            if count is None:
                new += _size(message)
            found.append(count)
        return found, new

    def count_message(self, message: Message, model: str) -> int:
        """Tokens of one message, its overhead included."""
        scheme = scheme_for(model)
        found = self._messages.get(_key(message, scheme))
        return self._message(message, scheme) if found is None else found

    def count_text(self, text: str, model: str) -> int:
        """Tokens of a bare text."""
        return self._text(scheme_for(model), text)

    def cut_text(self, text: str, model: str, max_tokens: int) -> str:
        """The longest beginning of ``max_tokens`` tokens at most, in whole characters."""
        family = scheme_for(model).family
        try:
            return self._vocabulary(family.encoding).cut(text, max_tokens * 100 // family.percent)
        except TokenizerFailed as error:
            self._estimating(error)
            return text[: max(0, max_tokens) * ESTIMATED_CHARS]

    def remember(self, message: Message, model: str, tokens: int) -> None:
        """Take over a count that another worker made by the same rules; one below the least is not believed."""
        if tokens > PER_MESSAGE:
            self._messages.put(_key(message, scheme_for(model)), tokens)

    async def _elsewhere(self, fill: Callable[[], _Filled], *, loaded: bool) -> _Filled:
        """In the thread that is quickest; in any other while that one has work, so that nobody queues behind it.

        :param loaded: whether the vocabulary is there; it is loaded with the quickest thread's help
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
        added: Sequence[Message],
        scheme: Scheme,
        found: Sequence[int | None],
        fixed: tuple[int, int] | None,
    ) -> _Filled:
        """Count what is not known yet; safe in any thread."""
        counts: list[int] = []
        for place, count in enumerate(found):
            counts.append(self._message(added[place], scheme) if count is None else count)
        return counts, fixed_tokens(request, partial(self._text, scheme)) if fixed is None else fixed

    def _message(self, message: Message, scheme: Scheme) -> int:
        # Not by the memory of texts: what is in a message is remembered with it.
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
        found = self._loaded.get(encoding)
        if found is not None:
            return found
        if encoding in self._missing:
            raise self._missing[encoding]
        try:
            found = self._loaded[encoding] = vocabulary(encoding, self._folder)
        except TokenizerFailed as error:
            if self._on_failure == "estimate":  # what is estimated stays so, and each try costs milliseconds
                self._missing[encoding] = error
            raise
        return found

    def _estimating(self, error: TokenizerFailed) -> None:
        """Go on with an estimate, or not."""
        if self._on_failure == "error":
            raise error
        if not self._warned:
            self._warned = True
            self._on_warning(f"Tokens are estimated at {ESTIMATED_CHARS} characters each: {error.message}")


def _key(message: Message, scheme: Scheme) -> Key:
    return scheme.key, message.digest, message.wording


async def _fixed_key_of(request: ModelRequest, scheme: Scheme) -> Key:
    """The key of what is billed beside the messages; of megabytes it is made in a thread."""
    if len(request.body) <= HASHED_BYTES:
        return _fixed_key(request, scheme)
    return await asyncio.to_thread(_fixed_key, request, scheme)


def _fixed_key(request: ModelRequest, scheme: Scheme) -> Key:
    """By the raw bytes where the request has them: hashing them is quicker than writing them anew."""
    system = next((message.digest for message in request.messages if message.is_system), b"")
    members = request.counted.items()
    parts = [request.fields.get(name) or serialised(value).encode(errors="surrogatepass") for name, value in members]
    return scheme.key, digest_of(system, *[name.encode() for name in request.counted], *parts), _COST


def _change_key(fixed: Key) -> Key:
    """Where the second of two figures is remembered, beside the first."""
    return *fixed[:2], _CHANGE


def _missing(request: ModelRequest, found: Sequence[int | None], known: int) -> tuple[int, int]:
    """Of the stored messages that are not remembered: the position of the first, and the characters of all."""
    pairs = zip(request.messages, found, strict=True)
    said = [(message, count) for message, count in pairs if not message.is_system][:known]
    missing = [(place, message) for place, (message, count) in enumerate(said, 1) if count is None]
    return (missing[0][0] if missing else 1), sum(_size(message) for _, message in missing)


def _size(message: Message) -> int:
    """Characters to count in a message, about; an image's data is not among them."""
    if not message.calls and not message.media:
        return len(message.text) + len(message.name or "") + len(message.answers or "")
    calls = sum(len(call.arguments) + len(call.name) + len(call.id) for call in message.calls)
    parts = len(message.raw) if any(kind_of(part) not in IMAGES for part in message.media) else 0
    parts += PART_CHARS * len(message.media)
    return len(message.text) + calls + parts + len(message.name or "") + len(message.answers or "")
