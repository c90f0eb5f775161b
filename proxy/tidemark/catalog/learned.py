"""Computes, caches and stores what an overflow error teaches: a window, and the upstream's tokens for one of ours.

The upstream's ``overflow.py`` reads the provider's error. If the model is not calibrated, both figures become one:
the window in our own tokens. If it is calibrated, they stay apart: replies teach how dense the upstream's tokens
are, and a window that shrank for the same reason would be divided twice.

The catalog looks here before every request, and the registry shows these windows. An error may quote what a caller
wrote, so it changes no other caller's window (promise 8). The store keeps the windows for other workers and later ones.
A worker loads a credential's windows once; what other workers learn afterwards, it learns by itself.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, replace

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import StoreError
from tidemark.core.events import Listener, WindowLearned
from tidemark.core.frozen import frozen
from tidemark.core.models import ModelOverrides
from tidemark.core.planning.budget import ModelProfile, ModelWindow, budget_for, reply_reserve
from tidemark.core.ports import Caller, Route
from tidemark.store.lessons import RedisLearnedWindows
from tidemark.upstream.overflow import Overflow

KEPT_RATIO = 0.8
"""The least share of a window that is stored after an overflow error, however dense the upstream's tokens were."""
LEAST_RATIO = 0.25
"""The least share of a window that one replay uses."""
NEAR = 0.05
"""How near the request's own size an error's must be, without a reply length that nobody stated."""
REMEMBERED = 1024
"""The most windows in memory. Clients choose the names, so the memory needs a bound."""
CREDENTIALS = 10_000
"""The most credentials that are remembered as loaded."""
_Identity = tuple[str, str, str, bytes, ModelOverrides]
"""Address, provider, the upstream's name of the model, the credential's fingerprint, and the registry's settings."""


@frozen
class LearnedWindow:
    """A model's window as an overflow taught it."""

    window: ModelWindow
    density: float = 1.0
    """The upstream's tokens for one of ours; 1 if the window counts our own."""
    whole_reply: bool = False
    """See ``ModelProfile``."""

    def over(self, stated: ModelWindow) -> ModelWindow:
        """Return the smaller of a configured and the learned window; any other source's is replaced."""
        learned = self.window
        if stated.source != "manual":
            return learned
        return replace(
            stated,
            max_input_tokens=min(stated.max_input_tokens, learned.max_input_tokens),
            context_window=min(stated.window, learned.window),
        )


def learn_from_reply(
    profile: ModelProfile, overflow: Overflow, sent_tokens: int, reply_tokens: int | None
) -> LearnedWindow | None:
    """Learn from a refusal whose cause is the reply: the input fits the window, input and reply do not.

    The window stays as large as the upstream says. What is learned is that the whole reply counts (vLLM).

    :param sent_tokens: the request that did not fit, in the upstream's tokens by its calibration
    :param reply_tokens: the longest reply that the request allows; None if it states none
    :returns: None if the input is the cause, or may be
    """
    # Of a length that nobody states, an upstream may keep more free than Tidemark does.
    is_whole = profile.whole_reply or reply_tokens is None
    window, limit = profile.window, budget_for(replace(profile, whole_reply=is_whole), reply_tokens).limit
    window_tokens = min(overflow.window_tokens or window.window, window.window)
    learned = window if window_tokens == window.window else _shrunk(window, window_tokens, 1.0)
    margin = round(profile.policy.margin * learned.window)
    reserve = reply_reserve(learned, reply_tokens, whole=is_whole, margin=margin)
    reply_tokens = reserve if reply_tokens is None else reply_tokens
    if reply_tokens <= reserve and sent_tokens <= limit:
        return None  # the reserve was left free and covers the reply, so the input was counted too small
    size = overflow.requested_tokens or sent_tokens
    if abs(size - reply_tokens - sent_tokens) < abs(size - sent_tokens):  # some upstreams report one number for both
        size -= reply_tokens
    is_guess = is_whole and not profile.whole_reply  # of the upstream's own reply length, which nobody stated
    if not size <= window_tokens < size + reply_tokens or (is_guess and abs(size - sent_tokens) > NEAR * sent_tokens):
        return None
    return LearnedWindow(learned, profile.density, whole_reply=True)


def learn_window(window: ModelWindow, overflow: Overflow, sent_tokens: int) -> tuple[LearnedWindow, LearnedWindow]:
    """Return the windows for the replay and for later requests, if the model is not calibrated.

    An upstream that counts more tokens for the same text than we do has a window that is smaller by that ratio in our
    tokens. One odd request must not shrink the window of all others, so the stored window is at least ``KEPT_RATIO``
    of the old one.

    :param window: the window until now
    :param sent_tokens: the request that did not fit, as counted here
    """
    believed, requested = window.window, overflow.requested_tokens or 0
    # The upstream's own number comes first, so that reporting it again does not shrink the window again.
    window_tokens = overflow.window_tokens or min(sent_tokens or believed, believed)
    ratio = 1.0
    if requested > sent_tokens > 0:
        ratio = max(sent_tokens / requested, LEAST_RATIO)
    elif overflow.window_tokens is None or window_tokens == believed:  # too large, though the window is not new
        ratio = KEPT_RATIO
    return LearnedWindow(_shrunk(window, window_tokens, ratio)), LearnedWindow(
        _shrunk(window, window_tokens, max(ratio, KEPT_RATIO))
    )


def learn_window_and_density(
    window: ModelWindow, overflow: Overflow, sent_tokens: int, factor: float
) -> tuple[LearnedWindow, LearnedWindow]:
    """Return both windows in the upstream's tokens, if the model is calibrated.

    The stored density of an odd request is bounded by ``KEPT_RATIO`` too, until the first reply teaches a better one.

    :param window: the window until now, in the upstream's tokens
    :param sent_tokens: the request that did not fit, as counted here
    :param factor: the upstream's tokens for one of ours, until now
    """
    believed, requested = round(sent_tokens * factor), overflow.requested_tokens or 0
    window_tokens, density = overflow.window_tokens, factor
    if requested > believed > 0:
        density = requested / sent_tokens
    elif window_tokens in (window.window, window.max_input_tokens):  # too large, though the window is not new
        density = factor / KEPT_RATIO
    if window_tokens is None:
        learned = _shrunk(window, min(requested or believed or window.window, window.window), KEPT_RATIO)
    else:
        if window.source == "default":  # a default may be too small as well
            window = replace(window, max_input_tokens=window_tokens, context_window=None)
        learned = _shrunk(window, window_tokens, 1.0)
    stored_density = max(min(density, 1 / KEPT_RATIO), 1.0)
    return LearnedWindow(learned, min(density, 1 / LEAST_RATIO)), LearnedWindow(learned, stored_density)


def _shrunk(window: ModelWindow, window_tokens: int, ratio: float) -> ModelWindow:
    size = max(int(window_tokens * ratio), 1)
    source = "api" if window.source == "default" else window.source
    most = min(size, window.max_input_tokens)
    if window.context_window and window_tokens <= window.max_input_tokens < window.context_window:
        # A limit on the input alone, such as GPT-5's. The reply's share of the window stays beside it.
        return replace(window, max_input_tokens=most, source=source)
    return replace(window, max_input_tokens=most, context_window=size, source=source)


class LearnedWindows:
    """A bounded cache in front of the store, with the newest window last.

    :param store: None if there is no store
    :param emit: is given each window that an overflow taught this process
    """

    def __init__(self, store: RedisLearnedWindows | None = None, emit: Listener = lambda _: None) -> None:
        self._store = store
        self._emit = emit
        self._learned: BoundedCache[_Identity, LearnedWindow] = BoundedCache(REMEMBERED)
        self._loaded: BoundedCache[bytes, bool] = BoundedCache(CREDENTIALS)
        """The credentials whose windows were loaded from the store."""

    async def keep(self, route: Route, caller: Caller, overrides: ModelOverrides, learned: LearnedWindow) -> None:
        """Store a learned window; without a store, it lasts as long as the process.

        :param overrides: the registry's settings; a new setting ends the learned window, because the server may be
            larger now
        """
        identity = _identity(route, caller, overrides)
        self._learned.put(identity, learned)
        self._emit(WindowLearned(route.name, learned.window.window, owner_of(caller.fingerprint)))
        if self._store is not None:
            packed = _pack(identity, learned)
            name = digest_of(route.base_url.encode(), route.provider.encode(), route.upstream_model.encode()).hex()
            with contextlib.suppress(StoreError):
                await self._store.keep_lesson(owner_of(caller.fingerprint), name, packed)

    async def of(self, route: Route, caller: Caller, overrides: ModelOverrides) -> LearnedWindow | None:
        if self._store is not None and caller.fingerprint not in self._loaded:
            await self._recall(self._store, caller.fingerprint)
        if not self._learned:
            return None
        return self._learned.get(_identity(route, caller, overrides))

    async def _recall(self, store: RedisLearnedWindows, fingerprint: bytes) -> None:
        try:
            packed_windows = await store.lessons(owner_of(fingerprint))
        except StoreError:
            return  # the next request tries again; the store's outage handling keeps that from waiting twice
        self._loaded.put(fingerprint, value=True)
        for packed_window in packed_windows:
            if (read := _unpack(packed_window, fingerprint)) is not None and read[0] not in self._learned:
                self._learned.put(read[0], read[1])

    def shown(
        self, provider: str, model: str, overrides: ModelOverrides, owner: str | None, window: ModelWindow
    ) -> ModelWindow:
        """Return the window that an owner's requests get; for the operator (None), the newest one of any owner."""
        for (_, by, name, fingerprint, then), learned in reversed(self._learned.items()):
            mine = owner is None or owner_of(fingerprint) == owner
            if mine and (by, name, then) == (provider, model, overrides):
                return learned.over(window)
        return window


def _identity(route: Route, caller: Caller, overrides: ModelOverrides) -> _Identity:
    return (route.base_url, route.provider, route.upstream_model, caller.fingerprint, overrides)


def _pack(identity: _Identity, learned: LearnedWindow) -> bytes:
    """Encode a learned window, without the credential that its store key contains."""
    base_url, provider, model, _, overrides = identity
    identity_fields = {"base_url": base_url, "provider": provider, "model": model, "said": overrides.set_fields}
    window_fields = {"window": asdict(learned.window), "density": learned.density, "whole_reply": learned.whole_reply}
    return json.dumps({**identity_fields, **window_fields}).encode()


def _unpack(packed: bytes, fingerprint: bytes) -> tuple[_Identity, LearnedWindow] | None:
    """Decode a learned window; None if another version wrote what this one cannot read."""
    try:
        record = json.loads(packed)
        identity = (
            record["base_url"],
            record["provider"],
            record["model"],
            fingerprint,
            ModelOverrides(**record["said"]),
        )
        whole_reply = record.get("whole_reply") is True  # older records lack it
        return identity, LearnedWindow(ModelWindow(**record["window"]), float(record["density"]), whole_reply)
    except (ValueError, TypeError, KeyError):
        return None
